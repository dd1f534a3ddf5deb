"""The agent asks at `mesh-port` for the firmware, and also detects another radio in its place."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.extensions.people.registry import can_reach
from tests.extensions.lab.simulator.test_simulate_node import nodes
from tests.processes import Agent, until
from tests.serial_device import serial_device

HANDLES = {"meshtastic": "!a1b2c3d4", "meshcore": "ab" * 32}


def mesh(kit: Agent) -> Any:
    return kit.call("GET", "/api/status").body["mesh"]


def people_kit(home: Path, port: Path | str, **more: str) -> Agent:
    return Agent(home, {"satellite-port": None, "mesh-port": str(port), **more})


def is_ready(kit: Agent, firmware: str) -> bool:
    status = mesh(kit)
    return (status["state"], status["protocol"]) == ("ready", firmware)


@pytest.mark.parametrize("named", [{}, {"mesh-protocol": "auto"}])
def test_replaced_radio_with_other_firmware_is_detected(
    tmp_path: Path, named: dict[str, str]
) -> None:
    with people_kit(tmp_path, tmp_path / "air" / "node-1", **named) as kit:
        for firmware in HANDLES:
            with nodes(tmp_path, "--kind", firmware, "--nodes", "1"):
                kit.expect(f"has the firmware {firmware}")
                until(partial(is_ready, kit, firmware))


def test_firmware_is_detected_over_tcp(tmp_path: Path) -> None:
    with nodes(tmp_path, "--kind", "meshcore", "--nodes", "2", "--tcp-port", "0") as air:
        place = next(line for line in air.lines if "tcp://" in line).partition("radio-port=")[2]
        with people_kit(tmp_path, place) as kit:
            until(lambda: is_ready(kit, "meshcore"))


def test_silent_line_is_reported_with_the_tried_firmwares(tmp_path: Path) -> None:
    with serial_device() as device, people_kit(tmp_path, device.port) as kit:
        kit.expect("no radio with the firmware meshtastic or meshcore answers at")
        until(lambda: mesh(kit)["state"] == "absent")
        assert "accepts bytes and does not answer" in mesh(kit)["reason"]


@pytest.mark.parametrize("firmware", HANDLES)
def test_only_handles_of_the_detected_firmware_are_reachable(firmware: str) -> None:
    link = ChannelLink()
    assert all(can_reach("auto", link, handle) for handle in HANDLES.values())
    link.facts["protocol"] = firmware
    names = {name for name, handle in HANDLES.items() if can_reach("auto", link, handle)}
    assert names == {firmware}


@pytest.mark.parametrize(
    "place", ["tcp://radio:99999", "tcp://radio:x", "tcp://[::1", "tcp://a..b"]
)
def test_invalid_radio_address_is_reported_and_retried(tmp_path: Path, place: str) -> None:
    with people_kit(tmp_path, place, **{"mesh-protocol": "meshcore"}) as kit:
        kit.expect(f"people's radio is away: {place} cannot be reached")
        until(lambda: mesh(kit)["state"] == "absent")
        assert place in mesh(kit)["reason"]
