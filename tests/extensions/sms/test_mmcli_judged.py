"""Checks our model of ModemManager's command against Debian's ModemManager."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from fieldagent.wire.sms_frame import PARTS_DOWN
from tests.agent.test_agent import HOOK
from tests.extensions.sms.modem_manager import MISSING, modem_manager
from tests.extensions.sms.network import HUB_NUMBER, REFERENCE, Country, country, facts, reaches
from tests.extensions.sms.test_sms_journey import contents
from tests.extensions.sms.test_sms_parts import LONG
from tests.hub.raising import changed
from tests.machine import needs
from tests.processes import Agent, until

pytestmark = [
    pytest.mark.full,
    needs(not MISSING, f"apt-get install modemmanager dbus: {', '.join(MISSING)} is missing"),
]


@contextmanager
def kit_of(home: Path) -> Iterator[tuple[Country, Agent]]:
    with country(home) as network, modem_manager(home, home / "gsm") as environment:
        network.port, network.environment = "mmcli", environment
        with network.kit(**{"inbound-hook": HOOK}) as kit:
            reaches(kit, "ready")
            yield network, kit


def test_messages_travel_both_ways_through_real_modemmanager(tmp_path: Path) -> None:
    with kit_of(tmp_path) as (network, kit):
        assert facts(kit)["smsModem"] == "490154203237518"
        assert kit.post("Camp reached, gr\u00fcezi").body["status"] == "Delivered"
        assert contents(network.database) == ["camp reached, gr\u00fcezi"]
        network.push("come to the hut")
        kit.expect("come to the hut")
        states = "SELECT state, way FROM delivery"
        until(lambda: changed(network.database, states) == [("stored", "sms")])


def test_parts_are_reassembled_in_any_order(tmp_path: Path) -> None:
    """The parts come one after the other: of two at one moment, ModemManager 1.20 reads only the
    first.
    """
    with kit_of(tmp_path) as (network, kit):
        assert kit.post("where are you?").body["status"] == "Delivered"
        network.in_parts = (2,)
        network.push(LONG)
        until(lambda: "receiving" in listed(network))
        _, _, text = network.adapter.read(network.service.got[-1])
        network.modem.type(f"part {HUB_NUMBER} {REFERENCE} 1/2 {text[:100]}")
        kit.expect(LONG)


def test_message_of_eight_parts_is_reassembled(tmp_path: Path) -> None:
    """The hub sends at most eight parts. Each arrives after the previous one was read."""
    with kit_of(tmp_path) as (network, kit):
        assert kit.post("where are you?").body["status"] == "Delivered"
        # Words that no table compresses, so that they fill their parts.
        words = " ".join(f"{number * 7919 % 99991:05d}" for number in range(130))
        before = network.down
        network.loses_down = 1
        network.push(words)
        until(lambda: network.down == before + 1)
        _, _, text = network.adapter.read(network.service.got[-1])
        pieces = [text[at : at + 153] for at in range(0, len(text), 153)]
        assert len(pieces) == PARTS_DOWN
        for number, piece in enumerate(pieces, 1):
            network.modem.type(f"part {HUB_NUMBER} {REFERENCE} {number}/{len(pieces)} {piece}")
            if number < len(pieces):
                until(partial(_has_read, network, number))
        kit.expect(words)
        states = "SELECT state, way FROM delivery"
        until(lambda: changed(network.database, states) == [("stored", "sms")])


def _has_read(network: Country, count: int) -> bool:
    """Return True if ModemManager has read that many SMS on the SIM."""
    network.modem.type("sim")
    lines = [line for line in network.modem.output() if " on the SIM, " in line]
    return bool(lines) and lines[-1].endswith(f" on the SIM, {count} of them read")


def listed(network: Country) -> str:
    """Return ModemManager's list of SMS."""
    command = ["mmcli", "-m", "any", "--messaging-list-sms"]
    result = subprocess.run(
        command, env={**network.environment}, capture_output=True, text=True, check=True
    )
    return result.stdout
