"""The whole route by SMS, with each end as a process: from a POST at the kit over its simulated
modem and a service to the hub, and the hub's answer back.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldagent.hub.field.sms_mail import TOO_LONG
from tests.agent.test_agent import HOOK
from tests.extensions.sms.network import country, facts, forwarding
from tests.extensions.sms.test_services import ADAPTERS
from tests.hub.raising import changed
from tests.processes import administer, free_port, until


def contents(database: str) -> list[str]:
    """Return the texts that the hub got from kits, in its search form."""
    return [words for (words,) in changed(database, "SELECT words FROM item ORDER BY id")]


@pytest.mark.full
@pytest.mark.parametrize("name", ADAPTERS)
def test_delivered_means_stored_at_the_hub(tmp_path: Path, name: str) -> None:
    with country(tmp_path, name) as network, network.kit() as kit:
        answer = kit.post("Camp reached, grüezi")
        assert answer.body["status"] == "Delivered"
        assert answer.body["channels"] == {"Cellular": {"status": "Delivered"}}
        assert contents(network.database) == ["camp reached, grüezi"]
        assert (len(network.up), facts(kit)["smsToday"]) == (1, 1)
        (heard,) = changed(network.database, "SELECT way FROM contact")
        assert heard == ("sms",)


def test_sms_delivered_to_the_hubs_phone_is_not_yet_delivered(tmp_path: Path) -> None:
    with country(tmp_path) as network, network.kit() as kit:
        network.stop_up()
        message = {"message": {"content": "anybody?"}}
        accepted = kit.call("POST", "/api/package/async", message)
        place = accepted.headers["location"]
        until(lambda: network.up)
        kit.expect("the hub's telephone has an SMS; the hub has not confirmed it yet")
        assert kit.call("GET", place).body["status"] is None
        network.go_on()
        until(lambda: kit.call("GET", place).body["status"] == "Delivered")


def test_sos_and_its_answer_travel_by_sms(tmp_path: Path) -> None:
    with country(tmp_path) as network, network.kit(**{"sms-after": "3600"}) as kit:
        # It does not wait for the hour that applies to all other messages.
        assert kit.call("POST", "/api/sos", {"text": "leg broken"}).status == 201
        until(lambda: administer(network.database, "sos", "list"))
        administer(network.database, "sos", "acknowledge", "1", "--by", "Olga")
        until(lambda: "Olga" in str(kit.call("GET", "/api/sos").body))


@pytest.mark.full
def test_waiting_items_arrive_by_sms_once(tmp_path: Path) -> None:
    with country(tmp_path) as network, network.kit(**{"inbound-hook": HOOK}) as kit:
        assert kit.post("where are you?").body["status"] == "Delivered"
        network.push("come to the hut")
        kit.expect("come to the hut")
        # One more SMS of the kit confirms it to the hub.
        states = "SELECT state, way FROM delivery"
        until(lambda: changed(network.database, states) == [("stored", "sms")])
        network.loses_down = 1
        network.push("bring water")
        until(lambda: not network.loses_down)
        # The lost message comes with the answer to the kit's next SMS.
        assert kit.post("is anybody there?").body["status"] == "Delivered"
        kit.expect("bring water")
        until(lambda: changed(network.database, states) == [("stored", "sms")] * 2)
        assert len([each for each in kit.output() if "hook: " in each]) == 2


@pytest.mark.parametrize("in_parts", [(), (2, 1)])
def test_sms_routed_directly_by_the_modem_arrives_once(
    tmp_path: Path, in_parts: tuple[int, ...]
) -> None:
    """Some modems send +CMT although the kit asked for +CMTI."""
    text = "come down to the hut before noon, and bring the rope with you"
    with country(tmp_path) as network, network.kit(**{"inbound-hook": HOOK}) as kit:
        network.modem.type("unasked on")
        assert kit.post("where are you?").body["status"] == "Delivered"
        network.in_parts = in_parts
        network.push(text)
        kit.expect(text)
        states = "SELECT state, way FROM delivery"
        until(lambda: changed(network.database, states) == [("stored", "sms")])
        assert len([each for each in kit.output() if "hook: " in each]) == 1


def test_item_too_long_for_sms_is_reported_and_blocks_nothing(tmp_path: Path) -> None:
    with country(tmp_path) as network, network.kit(**{"inbound-hook": HOOK}) as kit:
        network.push("long " * 200)
        network.push("short")
        assert kit.post("here").body["status"] == "Delivered"
        kit.expect('"short"')
        assert "long long" not in "".join(kit.output())
        reasons = "SELECT reason FROM delivery ORDER BY item"
        until(lambda: TOO_LONG in str(changed(network.database, reasons)))


@pytest.mark.full
@pytest.mark.parametrize("name", ADAPTERS)
def test_long_item_arrives_in_several_sms(tmp_path: Path, name: str) -> None:
    text = " ".join(f"word{number}" for number in range(90))
    with country(tmp_path, name) as network, network.kit(**{"inbound-hook": HOOK}) as kit:
        assert kit.post("where are you?").body["status"] == "Delivered"
        network.push(text)
        kit.expect(text)
        states = "SELECT state, way, reason FROM delivery"
        until(lambda: changed(network.database, states) == [("stored", "sms", "")])


@pytest.mark.full
def test_long_package_is_sent_in_fragments_and_a_lost_one_repeated(tmp_path: Path) -> None:
    text = " ".join(f"word{number}" for number in range(40))
    with country(tmp_path) as network, network.kit() as kit:
        network.loses_up = 1
        assert kit.post(text).body["status"] == "Delivered"
        assert contents(network.database) == [text]
        assert len(set(network.up)) > 3
        assert network.up.count(network.up[0]) >= 2, "the lost one went again unchanged"


def test_returning_ip_link_replaces_sms(tmp_path: Path) -> None:
    with country(tmp_path) as network:
        assert network.hub is not None
        address = f"http://127.0.0.1:{free_port()}"
        with network.kit(**{"hub-address": address}) as kit:
            network.stop_up()
            message = {"message": {"content": "by either"}}
            place = kit.call("POST", "/api/package/async", message).headers["location"]
            until(lambda: network.up)
            with forwarding(int(address.rpartition(":")[2]), network.hub.port):
                until(lambda: kit.call("GET", place).body["status"] == "Delivered")
                network.go_on()
                until(lambda: network.brought == len(network.up))
                left = len(network.up)
                assert kit.post("by the link").body["status"] == "Delivered"
                assert contents(network.database) == ["by either", "by the link"]
                assert len(network.up) == left
                assert facts(kit)["state"] == "ready"
