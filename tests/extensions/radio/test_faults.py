"""Failures in the parts of the radio: a part is started again, and nothing is lost or doubled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agent.test_faults import ENDINGS, OUTBOX, SOON, check_fault_is_reported, faults
from tests.breaking import Break, environment
from tests.extensions.lab.simulator.test_simulate_node import kit, nodes

RADIO = "fieldagent.extensions.radio.driver"


@pytest.mark.full
def test_package_arrives_once_when_radio_driver_fails(tmp_path: Path) -> None:
    broken = [
        Break(f"{RADIO}:RadioDriver._show_life"),
        Break(f"{RADIO}:RadioDriver._transmit"),
        Break("fieldagent.extensions.radio.radios.node:NodeModem.transmit"),
        Break("fieldagent.extensions.radio.radios.node:NodeModem.transmit", after=2, late=True),
        Break(f"{RADIO}:RadioDriver._settle"),
        Break(f"{OUTBOX}.wait_for_acknowledgement"),
        Break("fieldagent.extensions.radio.mesh.reception:RadioReception.receive", late=True),
        Break(f"{ENDINGS}.record"),
    ]
    rounds = Break("fieldagent.extensions.radio.mesh.repeating:ItemRepeater._repeat")
    change = environment(tmp_path, *SOON, *broken, rounds)
    with (
        nodes(tmp_path, "--seed", "7"),
        kit(tmp_path, 2) as ben,
        kit(tmp_path, 1, change) as ada,
    ):
        assert ada.post("precious").body["status"] == "Delivered"
        assert ada.post("next").body["status"] == "Delivered"
        hooked = [json.loads(ben.expect("hook: ").removeprefix("hook: ")) for _ in range(2)]
        events = [each["payloads"][0]["events"][0]["content"] for each in hooked]
        assert sorted(events) == ["next", "precious"]
        assert faults(ada)["the radio rounds"]["times"] == 1
        check_fault_is_reported(ada, "Radio", *broken)
