"""An SMS to the kit in several parts: one is lost, doubled, early, or missing forever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.test_agent import HOOK
from tests.extensions.sms.network import HUB_NUMBER, REFERENCE, country, facts
from tests.extensions.sms.test_sms_reports import STRANGER, all_is_read, said
from tests.processes import until

HOOKED = {"inbound-hook": HOOK}
LONG = "come down to the hut before noon, and bring the rope with you"


@pytest.mark.full
@pytest.mark.parametrize("order", [(1, 2), (2, 1), (1, 1, 2), (2, 2, 1, 1)])
def test_parts_in_any_order_and_repeated_are_one_message(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    with country(tmp_path) as network, network.kit(**HOOKED) as kit:
        assert kit.post("where are you?").body["status"] == "Delivered"
        network.in_parts = order
        network.push(LONG)
        kit.expect(LONG)
        assert said(kit, "hook: ") == 1


@pytest.mark.full
def test_lost_part_arrives_with_the_next_copy(tmp_path: Path) -> None:
    with country(tmp_path) as network, network.kit(**HOOKED) as kit:
        assert kit.post("where are you?").body["status"] == "Delivered"
        network.in_parts = (1,)
        network.push(LONG)
        until(lambda: network.down == 2)
        assert not said(kit, "bring the rope")
        network.in_parts = (1, 2)
        assert kit.post("are you there?").body["status"] == "Delivered"
        kit.expect(LONG)


@pytest.mark.full
def test_unfinished_message_with_the_same_reference_does_no_harm(
    tmp_path: Path,
) -> None:
    with country(tmp_path) as network, network.kit(**HOOKED) as kit:
        assert kit.post("where are you?").body["status"] == "Delivered"
        network.modem.type(f"part {HUB_NUMBER} {REFERENCE} 1/2 fa:of another one")
        network.in_parts = (1, 2)
        network.push(LONG)
        kit.expect(LONG)


def test_unfinished_parts_are_deleted_after_a_day_and_reported_once(tmp_path: Path) -> None:
    with country(tmp_path) as network:
        network.modem.type(f"part {HUB_NUMBER} 9 2/3 fa:alone")
        with network.kit() as kit:
            all_is_read(network, kit)
            assert not said(kit, "of its 3 parts")
        # This uses the network's clock. By its own clock, a kit that starts each day would keep the
        # parts forever.
        network.modem.type("later 25")
        with network.kit() as kit:
            all_is_read(network, kit)
            kit.expect(
                f"an SMS of {HUB_NUMBER} is deleted: 1 of its 3 parts came, the others never"
                " arrived"
            )
            all_is_read(network, kit)
            assert said(kit, "of its 3 parts") == 1


def test_unfinished_parts_do_not_fill_the_store(tmp_path: Path) -> None:
    with country(tmp_path) as network:
        for reference in range(30):
            network.modem.type(f"part {HUB_NUMBER} {reference} 1/2 fa:half")
        network.expect("the SIM is full")
        with network.kit() as kit:
            assert kit.post("there is room").body["status"] == "Delivered"
            until(lambda: facts(kit)["smsStore"] == "15 of 20")
            assert said(kit, "1 of its 2 parts came, and the modem's store is filled") == 5


def test_part_from_an_unknown_sender_is_deleted(tmp_path: Path) -> None:
    with country(tmp_path) as network, network.kit() as kit:
        network.modem.type(f"part {STRANGER} 3 1/2 spring")
        until(lambda: facts(kit)["smsStrangers"] == 1)
        until(lambda: facts(kit)["smsStore"] == "0 of 20")
