"""What we take ModemManager's command to be, judged by Debian's ModemManager itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.sms.modem_manager import LACKS, modem_manager
from tests.agent.sms.network import HUB_NUMBER, REFERENCE, Country, country, facts, reaches
from tests.agent.sms.test_sms_journey import contents
from tests.agent.sms.test_sms_parts import LONG
from tests.agent.test_agent import HOOK
from tests.hub.test_contacts import changed
from tests.processes import Agent, until

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(LACKS), reason=f"needs {', '.join(LACKS)}"),
]


@contextmanager
def kit_of(home: Path) -> Iterator[tuple[Country, Agent]]:
    with country(home) as network, modem_manager(home, home / "gsm") as environment:
        network.port, network.environment = "mmcli", environment
        with network.kit(**{"inbound-hook": HOOK}) as kit:
            reaches(kit, "ready")
            yield network, kit


def test_it_sends_and_takes_in_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with kit_of(tmp_path) as (network, kit):
        assert facts(kit)["smsModem"] == "490154203237518"
        assert kit.post("Camp reached, gr\u00fcezi").body["status"] == "Delivered"
        assert contents(network.database) == ["camp reached, gr\u00fcezi"]
        network.push("come to the hut")
        kit.expect("come to the hut")
        states = "SELECT state, way FROM delivery"
        until(lambda: changed(network.database, states) == [("stored", "sms")])


def test_parts_are_one_message_in_any_order(tmp_path: Path) -> None:
    """One after the other: of two that come at one moment ModemManager 1.20 reads the first."""
    with kit_of(tmp_path) as (network, kit):
        assert kit.post("where are you?").body["status"] == "Delivered"
        network.in_parts = (2,)
        network.push(LONG)
        until(lambda: "receiving" in listed(network))
        _, _, text = network.adapter.read(network.service.got[-1])
        network.modem.type(f"part {HUB_NUMBER} {REFERENCE} 1/2 {text[:100]}")
        kit.expect(LONG)


def listed(network: Country) -> str:
    """What ModemManager has."""
    command = ["mmcli", "-m", "any", "--messaging-list-sms"]
    told = subprocess.run(
        command, env={**network.environment}, capture_output=True, text=True, check=True
    )
    return told.stdout
