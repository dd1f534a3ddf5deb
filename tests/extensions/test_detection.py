"""`fieldagent radio` shows which radio is at a port: each known one, as a real process, and devices
that are none or cannot be asked.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fieldagent.agent.kit_part import get_device_parts
from fieldagent.kit.devices import get_all_kinds, get_radios
from fieldagent.system.exit_codes import MISSING, OK, SETTINGS
from fieldagent.wire import kiss, meshtastic, model, rnode
from fieldagent.wire import meshcore_companion as companion
from fieldagent.wire import meshcore_kiss as meshcore
from fieldagent.wire.node import Damaged, NodeHello, NodeLink, NodeOpened
from tests.extensions.lab.simulator.test_simulate_node import kit, nodes
from tests.processes import MODULE, PATIENCE
from tests.serial_device import serial_device

SILENT = {"kiss", "aprs", "udp", "auto"}
"""Radios that cannot be asked: a TNC is silent, and those that are not devices have no port."""
KNOWN = sorted({kind for part in get_device_parts().values() for kind in part.kinds} - SILENT)
NOTHING = 13
"""A command that neither KISS nor RNode has."""


def shown(place: str | Path, *more: str) -> tuple[int, str]:
    """Return the exit code and the output."""
    command = [*MODULE, "radio", str(place), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout + done.stderr


def told(place: str | Path) -> tuple[int, Any]:
    code, text = shown(place, "--json")
    return code, json.loads(text)


def test_every_supported_radio_kind_is_tested() -> None:
    assert {each.name for each in get_radios()} == set(KNOWN)


@pytest.mark.full
@pytest.mark.parametrize("kind", KNOWN)
def test_radio_kind_is_recognised_without_transmitting(kind: str, tmp_path: Path) -> None:
    with nodes(tmp_path, "--kind", kind, "--nodes", "1") as air:
        code, finding = told(tmp_path / "air" / "node-1")
        assert (code, finding["kind"], finding["trouble"], finding["why"]) == (OK, kind, [], None)
        assert finding["firmware"]
        code, text = shown(tmp_path / "air" / "node-1")
        assert (code, text.splitlines()[0]) == (OK, finding["is"])
        assert "BAD" not in text
        assert not [line for line in air.output() if "transmits" in line], "asking is silent"


def test_unprovisioned_rnode_is_reported(tmp_path: Path) -> None:
    with nodes(tmp_path, "--kind", "rnode", "--nodes", "1") as air:
        air.type("provisioned 1 off")
        air.expect("is not provisioned")
        code, text = shown(tmp_path / "air" / "node-1")
        assert code == SETTINGS
        assert "BAD it is not provisioned: run `rnodeconf --autoinstall` with it once" in text


def test_low_battery_of_a_meshcore_board_is_reported(tmp_path: Path) -> None:
    with nodes(tmp_path, "--kind", "meshcore-kiss", "--nodes", "1") as air:
        air.type("battery 1 3300")
        air.expect("3300 mV")
        code, text = shown(tmp_path / "air" / "node-1")
        assert code == SETTINGS
        assert "BAD the battery has 3.30 V: charge the battery" in text


def test_meshtastic_radio_without_a_region_is_reported(tmp_path: Path) -> None:
    with nodes(tmp_path, "--kind", "meshtastic", "--nodes", "1") as air:
        air.type("region 1 off")
        air.expect("transmits nothing")
        code, text = shown(tmp_path / "air" / "node-1")
        assert code == SETTINGS
        assert "BAD no region is set on the radio, so it transmits nothing" in text


def test_node_with_small_packets_is_reported_with_the_setting(tmp_path: Path) -> None:
    with nodes(tmp_path, "--packet-bytes", "64"):
        code, text = shown(tmp_path / "air" / "node-1")
        assert code == OK
        assert "set radio-packet-bytes=64 on each kit of the group" in text


def test_port_in_use_by_the_agent_is_reported(tmp_path: Path) -> None:
    with nodes(tmp_path), kit(tmp_path, 1) as agent:
        agent.expect("node sim-1 answers")
        code, text = shown(tmp_path / "air" / "node-1")
        process = agent.process.pid
        assert code == MISSING
        assert f"is in use by the agent (process {process}): `kill {process}` ends it" in text


def test_missing_port_is_reported(tmp_path: Path) -> None:
    code, text = shown(tmp_path / "nothing")
    assert code == MISSING
    assert "nothing does not exist" in text


@pytest.mark.full
def test_silent_device_is_reported_as_tnc_or_dead_line() -> None:
    with serial_device() as device:
        code, text = shown(device.port)
        assert code == MISSING
        assert (
            "the device accepts bytes and does not answer, as a KISS TNC or a dead line does"
            in text
        )
        check_harmless(bytes(device.sent))


def check_harmless(asked: bytes) -> None:
    """Check that the bytes for a silent line make no firmware transmit or change a setting."""
    ping = bytes([meshcore.MeshcoreCommand.PING])
    framed = kiss.KissDeframer().receive_data(asked + bytes([kiss.FEND]))
    assert {each for each in framed if each[0] != NOTHING} == {
        (rnode.RnodeCommand.DETECT, rnode.DETECT),
        (kiss.SET_HARDWARE, ping),
    }, "a data frame would be transmitted; another command would set something"
    assert NOTHING not in {*rnode.RnodeCommand}
    assert ping not in (rnode.STATE_ON, rnode.OFF), "KISS's SetHardware turns an RNode on and off"
    asks = meshtastic.ToRadio(want_config=meshtastic.WITHOUT_NODES_NONCE)
    frames = [*meshtastic.Deframer().receive_data(asked)]
    assert {meshtastic.TO_RADIO.decode(each) for each in frames} == {asks}
    said = companion.CompanionDeframer(companion.TO_RADIO).receive_data(asked)
    starts = {companion.CompanionCommand.APP_START} if "meshcore" in KNOWN else set()
    assert {each[0] for each in said} == starts
    link = NodeLink(NodeHello(boot=1))
    link.receive_data(asked, 0.0)
    events = []
    while (event := link.next_event()) is not None:
        events.append(event)
    assert any(isinstance(event, NodeOpened) for event in events)
    assert all(isinstance(event, NodeOpened | Damaged) for event in events)
    commands = {each for each in asked.split(b"\r") if each.startswith((b"AT", b"GET", b"PUT"))}
    of_modems = {each.question().strip() for each in get_all_kinds()}
    assert commands <= {model.QUESTION.strip(), *of_modems}


def test_radio_unplugged_during_the_query_is_reported() -> None:
    with serial_device(lambda data: None) as device:
        code, text = shown(device.port)
        assert code == MISSING
        assert "went away" in text


@pytest.mark.full
def test_radio_that_stops_answering_is_reported() -> None:
    """The radio sends its identity and nothing more."""
    answered = rnode.make_command_frame(rnode.RnodeCommand.DETECT, rnode.DETECTED)
    asked = rnode.make_command_frame(rnode.RnodeCommand.DETECT, rnode.DETECT)
    with serial_device(lambda data: answered if asked in data else b"") as device:
        code, text = shown(device.port)
        assert code == SETTINGS
        assert "BAD it reports an RNode and then stops" in text


@pytest.mark.full
def test_board_that_resets_when_its_port_opens_is_asked_again() -> None:
    ping = meshcore.ask(meshcore.MeshcoreCommand.PING)
    pong = kiss.encode(
        bytes([meshcore.MeshcoreCommand.PING | meshcore.ANSWER_FLAG]), kiss.SET_HARDWARE
    )
    asked: list[bytes] = []

    def answer(data: bytes) -> bytes:
        if ping not in data:
            return b""
        asked.append(data)
        return pong if len(asked) > 1 else b""

    with serial_device(answer) as device:
        _, finding = told(device.port)
        assert finding["kind"] == "meshcore-kiss"


def test_no_question_counts_as_an_answer() -> None:
    """The exception is the hello of the node link, which both ends send."""
    for asker in get_all_kinds():
        taken = [each.name for each in get_all_kinds() if each.is_answer(asker.question())]
        assert set(taken) <= {asker.name} & {"node"}
