"""`fieldagent simulate node` with two agents, all real processes: the view of a user."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_agent import HOOK
from tests.processes import MODULE, Agent, Running, until


@contextmanager
def nodes(home: Path, *arguments: str) -> Iterator[Running]:
    command = [*MODULE, "simulate", "node", "--link", str(home / "air"), *arguments]
    with Running(command, "type `help`") as air:
        yield air


@contextmanager
def kit(
    home: Path, number: int, environment: Mapping[str, str] = {}, **more: str | None
) -> Iterator[Agent]:
    folder = home / f"kit-{number}"
    folder.mkdir(exist_ok=True)
    settings = {
        "satellite-port": None,
        "radio-port": str(home / "air" / f"node-{number}"),
        "radio-station": str(number),
        "radio-name": f"Kit {number}",
        "inbound-hook": HOOK,
        **more,
    }
    with Agent(folder, settings, MODULE, **environment) as running:
        yield running


@pytest.mark.full
def test_package_is_delivered_from_kit_to_kit(tmp_path: Path) -> None:
    with nodes(tmp_path, "--seed", "7") as air, kit(tmp_path, 1) as ada, kit(tmp_path, 2) as ben:
        assert air.lines[0] == "[air] seed 7"
        answer = ada.post("Camp reached").body
        assert (answer["status"], answer["channels"]) == (
            "Delivered",
            {"Radio": {"status": "Delivered"}},
        )
        payload = json.loads(ben.expect("hook: ").removeprefix("hook: "))["payloads"][0]
        assert payload["events"][0]["content"] == "Camp reached"
        assert payload["identity"] == {"id": "1", "name": "Kit 1", "type": "Device", "email": ""}
        radio = ada.call("GET", "/api/status").body["channels"]["Radio"]
        assert (radio["node"], radio["battery"], radio["neighbours"]) == ("sim-1", 90, 1)
        air.expect("node 2 hears")


@pytest.mark.full
def test_neighbours_show_duplicate_station_numbers_and_wrong_keys(tmp_path: Path) -> None:
    """The neighbours, two stations with one number, and one with another key."""
    stranger = {"radio-key": "11" * 32}
    with ExitStack() as stack:
        stack.enter_context(nodes(tmp_path, "--nodes", "4", "--seed", "7"))
        ada = stack.enter_context(kit(tmp_path, 1))
        assert "no kit was heard" in told(ada, "neighbours")
        alike = {"radio-station": "1", "radio-name": "Clone"}
        clone = stack.enter_context(kit(tmp_path, 2, {}, **alike))
        ben = stack.enter_context(kit(tmp_path, 3))
        eve = stack.enter_context(kit(tmp_path, 4, {}, **stranger))
        ada.call("POST", "/api/package/async", {"message": {"content": "I am 1"}})
        for each in (ada, clone):
            each.expect("another kit with this kit's radio-station")
            assert "another kit with this kit's radio-station" in told(each, "status")
        ben.expect("hook: ")
        heard = ben.call("GET", "/api/neighbours").body["neighbours"]
        # Without a key Ben also hears Eve.
        assert {1} <= {each["station"] for each in heard} <= {1, 4}
        assert {(each["rssi"], each["snr"]) for each in heard} == {(-80, 6)}
        assert re.search("1  (Kit 1|Clone) .* -80 dBm  SNR 6 dB", told(ben, "neighbours"))
        eve.expect("without a tag, and radio-key is set here")
        assert "give that kit the same radio-key" in told(eve, "status")


def test_neighbours_show_a_route_with_a_low_battery(tmp_path: Path) -> None:
    """The battery level is that of its node. It appears in the neighbour's API and in its list."""
    relays = {"satellite-port": str(tmp_path / "nobody"), "radio-relay": "satellite"}
    with nodes(tmp_path, "--seed", "7") as air, kit(tmp_path, 1) as ada:
        air.type("battery 2 19")
        air.expect("the battery of node 2 has 19 %")
        with kit(tmp_path, 2, {}, **relays) as ben:

            def has_said() -> bool:
                radio = ben.call("GET", "/api/status").body["channels"]["Radio"]
                return bool(radio.get("battery") == 19)

            until(has_said)
            ben.call("POST", "/api/package/async", {"message": {"content": "I am 2"}})
            until(lambda: "reaches the hub, a battery there is low" in told(ada, "neighbours"))
            (heard,) = ada.call("GET", "/api/neighbours").body["neighbours"]
            assert (heard["hopsToHub"], heard["routeBatteryLow"]) == (0, True)


@pytest.mark.full
def test_read_receipt_arrives_over_an_intermediate_kit(tmp_path: Path) -> None:
    """Kits 1 and 3 do not hear each other, and there is no hub. A press at the page of 3 appears
    once at 1 in the API, in `show` and in the events, also after both have restarted.
    """
    (tmp_path / "who").write_text("1 2\n2 3\n")
    who = ("--nodes", "3", "--topology", str(tmp_path / "who"), "--seed", "7")
    with ExitStack() as stack:
        stack.enter_context(nodes(tmp_path, *who))
        stack.enter_context(kit(tmp_path, 2))
        with kit(tmp_path, 1) as ada, kit(tmp_path, 3) as cleo:
            package = {"message": {"content": "are you there?"}, "receipt": "read"}
            sent = ada.call("POST", "/api/package/async", package).body["id"]
            cleo.expect("are you there?")
            (came,) = cleo.call("GET", "/api/inbound").body["payloads"]
            read = f"/api/inbound/{came['requestId']}/read"
            assert cleo.call("POST", read, {"by": "Cleo"}).status == 200
            until(lambda: read_at(ada, sent) == ["read by Cleo, at Kit 3's kit"])
            (step,) = (each for each in ladder(ada, sent) if each["stage"] == "read")
            assert abs(step["at"] - time.time()) < 120
            shown = subprocess.run(
                [*MODULE, "show", str(sent), "--port", str(ada.port)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            assert "read by Cleo, at Kit 3's kit" in shown
        with kit(tmp_path, 1) as ada, kit(tmp_path, 3):
            assert read_at(ada, sent) == ["read by Cleo, at Kit 3's kit"]


def ladder(kit: Agent, number: int) -> list[dict[str, Any]]:
    stages: list[dict[str, Any]] = kit.call("GET", f"/api/package/{number}").body["reached"]
    return stages


def read_at(kit: Agent, number: int) -> list[str]:
    return [each["text"] for each in ladder(kit, number) if each["stage"] == "read"]


@pytest.mark.full
def test_sos_reaches_all_kits_and_its_sender_sees_unconfirmed_ones(tmp_path: Path) -> None:
    """Three kits in range of each other and one behind a ridge, at 30 % loss."""
    (tmp_path / "who").write_text("1 2\n1 3\n2 3\n3 4\n")
    who = ("--nodes", "4", "--topology", str(tmp_path / "who"), "--loss", "0.3")
    with ExitStack() as stack:
        air = stack.enter_context(nodes(tmp_path, "--seed", "7", *who))
        kits = [stack.enter_context(kit(tmp_path, number)) for number in range(1, 5)]
        for each in kits:
            each.expect("the radio works")
            each.call("POST", "/api/package/async", {"message": {"content": "here"}})
        until(lambda: len(kits[0].call("GET", "/api/neighbours").body["neighbours"]) == 2)
        air.type("unplug 2")
        sos = {"message": {"content": "leg broken"}, "priority": 100}
        sent = kits[0].call("POST", "/api/package", sos).body
        assert sent["status"] == "Delivered"
        shown = subprocess.run(
            [*MODULE, "show", str(sent["id"]), "--port", str(kits[0].port)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert "heard within the hour, and has not: Kit 2" in shown
        assert "received by Kit 3's agent" in shown
        air.type("plug 2")
        for each in kits[1:]:
            each.expect("leg broken")
        until(lambda: not kits[0].call("GET", f"/api/package/{sent['id']}").body["unconfirmed"])


def test_sos_reaches_a_kit_that_was_never_heard(tmp_path: Path) -> None:
    """In the line 1-2-3, kit 2 has never heard kit 3 and repeats the SOS nevertheless."""
    (tmp_path / "who").write_text("1 2\n2 > 3\n")
    with (
        nodes(tmp_path, "--nodes", "3", "--topology", str(tmp_path / "who")),
        kit(tmp_path, 1) as ada,
        kit(tmp_path, 2),
        kit(tmp_path, 3) as ben,
    ):
        assert ada.post("hurt at the hut", priority=100).body["status"] == "Delivered"
        assert "hurt at the hut" in ben.expect("hook: ")


MINUTES = 10


@pytest.mark.full
def test_ten_moving_kits_receive_every_message_once(tmp_path: Path) -> None:
    """On an air with 30 % loss, each kit posts once a minute for ten minutes. From the third minute
    one is behind a ridge, where only one other hears it, and after the seventh it is back.
    """
    names = range(1, 11)
    behind, near = 10, 9

    def walk(loss: str) -> None:
        for each in names:
            if each not in (behind, near):
                air.type(f"between {each} {behind} {loss}")

    with ExitStack() as stack:
        how = ("--nodes", str(len(names)), "--loss", "0.3", "--seed", "7")
        air = stack.enter_context(nodes(tmp_path, *how))
        kits = {each: stack.enter_context(kit(tmp_path, each)) for each in names}
        began = time.monotonic()
        posted = {
            each: [f"{each} in minute {minute}" for minute in range(MINUTES)] for each in names
        }
        for minute in range(MINUTES):
            if minute in (3, 7):
                walk("off" if minute == 3 else "0")
            for name, running in kits.items():
                message = {"content": posted[name][minute]}
                answer = running.call("POST", "/api/package/async", {"message": message})
                assert answer.status == 202
            while time.monotonic() < began + 60 * (minute + 1):
                time.sleep(0.1)
        ends = time.monotonic() + 60 * MINUTES
        for name, running in kits.items():
            wanted = sorted(text for other in names if other != name for text in posted[other])
            while not {*wanted} <= {*texts(running)}:
                assert time.monotonic() < ends, {*wanted} - {*texts(running)}
                time.sleep(1)
            assert sorted(texts(running)) == wanted


def texts(of: Agent) -> list[str]:
    """Return the texts from all senders."""
    contents: list[str] = []
    path = "/api/inbound"
    while path:
        page = of.call("GET", path).body
        events = (each["body"]["payloads"][0]["events"][0] for each in page["payloads"])
        contents += [event["content"] for event in events]
        path = page["next"]
    return contents


@pytest.mark.full
def test_sender_sees_where_the_hop_limit_stops_its_sos(tmp_path: Path) -> None:
    """In the line 1-2-3-4 with a limit of one relay, kit 3 has the SOS, and kit 4 does not."""
    (tmp_path / "who").write_text("1 2\n2 3\n3 4\n")
    with ExitStack() as stack:
        who = ("--nodes", "4", "--topology", str(tmp_path / "who"))
        stack.enter_context(nodes(tmp_path, *who))
        hops: dict[str, str | None] = {"radio-hops": "2"}
        kits = [stack.enter_context(kit(tmp_path, each, {}, **hops)) for each in range(1, 5)]
        ada, near = kits[0], kits[2]
        for each in kits:
            # A single hello may be lost in a collision, so repeat until it is answered.
            each.expect("the radio works")
            each.call("POST", "/api/package/async", {"message": {"content": "here"}})
        until(lambda: len(near.call("GET", "/api/neighbours").body["neighbours"]) == 2)
        ada.call("POST", "/api/sos", {"text": "leg broken"})
        # By its number, if its name was lost on the air until then.
        assert "station 4 has not confirmed it there" in ada.expect("is not relayed: ")
        said = "Kit 3 has it and may not pass it on (radio-hops)"
        incident = ada.call("GET", "/api/sos").body["incident"]
        (step,) = [each for each in incident["steps"] if each["state"] == "not passed on"]
        assert step["text"] == f"{said}; station 4 has not confirmed it there"
        assert {"Kit 2", "Kit 3"} == {each.get("by") for each in incident["steps"]} - {None}
        (sent,) = incident["items"]
        called = [*MODULE, "show", str(sent["id"]), "--port", str(ada.port)]
        shown = subprocess.run(called, capture_output=True, text=True, check=True).stdout
        assert f"not passed on: {step['text']}" in shown
        assert said in told(ada, "status")


def test_invalid_topology_is_reported_as_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "who").write_text("1 2\n2 9\n")
    called = [*MODULE, "simulate", "node", "--topology", str(tmp_path / "who")]
    ended = subprocess.run(called, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.count("radio-port")) == (2, 0)
    assert "line 2, '2 9'" in ended.stderr


def told(of: Agent, command: str) -> str:
    called = [*MODULE, command, "--port", str(of.port)]
    return subprocess.run(called, capture_output=True, text=True, check=True).stdout


@pytest.mark.full
def test_unplugged_node_resumes_once_plugged_in(tmp_path: Path) -> None:
    with nodes(tmp_path) as air, kit(tmp_path, 1) as ada, kit(tmp_path, 2) as ben:
        air.type("unplug 1")
        ada.expect("the radio is away")
        queued = ada.call("POST", "/api/package/async", {"message": {"content": "later"}})
        assert queued.status == 202
        air.type("plug 1")
        assert json.loads(ben.expect("hook: ").removeprefix("hook: "))["payloads"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("help", "unplug N"),
        ("unplug 9", "name a node: 1, 2"),
        ("loss 0.5", "50% of the packets are lost"),
        ("loss much", "a chance is a number from 0 to 1"),
        ("busy on", "the channel is never free"),
        ("reboot 2", "has lost its memory"),
        ("between 1 2 0.25", "nodes 1 and 2 lose 25% of the packets between them"),
        ("between 2 1 off", "nodes 2 and 1 do not hear each other"),
        ("between 1 2", "between A B 0..1, or between A B off"),
        ("between 1 1 off", "of two nodes"),
        ("between 1", "name a node: 1, 2"),
        ("dance", "'dance' is not a command"),
    ],
)
def test_typed_command_is_answered(tmp_path: Path, typed: str, said: str) -> None:
    with nodes(tmp_path) as air:
        air.type(typed)
        air.expect(said)


@pytest.mark.parametrize("bad", [["--loss", "2"], ["--nodes", "0"], ["--bitrate", "-1"]])
def test_invalid_arguments_are_reported(bad: list[str]) -> None:
    with Running([*MODULE, "simulate", "node", *bad]) as running:
        assert running.wait() == 2
    assert "error: argument" in "\n".join(running.lines)


def test_late_kit_receives_stored_messages_from_a_restarted_kit(tmp_path: Path) -> None:
    """Ada's kit is off by then: only Ben's has it, on its disk."""

    with nodes(tmp_path, "--nodes", "3", "--seed", "7"):
        with kit(tmp_path, 1) as ada, kit(tmp_path, 2) as ben:
            ada.post("the hut is full")
            assert ada.call("POST", "/api/sos", {"text": "leg broken"}).status == 201
            until(lambda: {"the hut is full", "leg broken"} <= {*texts(ben)})
            ada.stop()
            ben.kill()
        with kit(tmp_path, 2), kit(tmp_path, 3) as cid:
            until(lambda: {"the hut is full", "leg broken"} <= {*texts(cid)})
            assert texts(cid).count("the hut is full") == texts(cid).count("leg broken") == 1
