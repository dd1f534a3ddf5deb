"""Faults of a modem and a mobile network, and the kit's reaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.test_agent import HOOK
from tests.extensions.sms.network import HUB_NUMBER, country, facts, reaches
from tests.extensions.sms.test_sms_journey import contents
from tests.processes import Agent, until


def accepted(kit: Agent, content: str) -> str:
    """Post a message and return the path of its state."""
    answer = kit.call("POST", "/api/package/async", {"message": {"content": content}})
    assert answer.status == 202
    return answer.headers["location"]


def arrives(kit: Agent, place: str) -> None:
    until(lambda: kit.call("GET", place).body["status"] == "Delivered")


def story(kit: Agent, place: str) -> str:
    """Return the history of the Package at this path."""
    return str(kit.call("GET", place).body["history"])


@pytest.mark.full
def test_sms_sent_again_after_a_power_cut_arrives_once(
    tmp_path: Path,
) -> None:
    with country(tmp_path) as network:
        with network.kit() as kit:
            network.stop_up()
            accepted(kit, "one alone")
            until(lambda: network.up)
            kit.kill()
        network.go_on()
        until(lambda: contents(network.database) == ["one alone"])
        with network.kit() as kit:
            assert facts(kit)["smsToday"] >= 1, "what left before counts"
            assert kit.post("and another").body["status"] == "Delivered"
            until(lambda: facts(kit)["queued"] == 0)
        assert contents(network.database) == ["one alone", "and another"]


@pytest.mark.full
@pytest.mark.parametrize("fault", ["lose", "garble"])
def test_sms_with_a_lost_reply_is_doubtful_and_arrives_once(tmp_path: Path, fault: str) -> None:
    with country(tmp_path) as network, network.kit() as kit:
        reaches(kit, "ready")
        network.stop_up()
        network.modem.type(fault)
        place = accepted(kit, "who knows")
        until(lambda: network.up)
        network.go_on()
        # The hub's answer is in the SIM's store, whatever the modem has reported.
        arrives(kit, place)
        assert contents(network.database) == ["who knows"]


@pytest.mark.full
@pytest.mark.parametrize("code", [38, 331, 512])
def test_sms_refused_temporarily_is_free_and_retried(tmp_path: Path, code: int) -> None:
    with country(tmp_path) as network, network.kit() as kit:
        reaches(kit, "ready")
        network.modem.type(f"refuse {code}")
        place = accepted(kit, "patience")
        kit.expect("an SMS was not sent")
        assert facts(kit)["smsToday"] == 0
        arrives(kit, place)
        assert facts(kit)["smsToday"] == 1


@pytest.mark.full
def test_sms_is_not_tried_without_a_network(tmp_path: Path) -> None:
    with country(tmp_path) as network:
        network.modem.type("network off")
        with network.kit() as kit:
            reaches(kit, "no service: the modem finds no network")
            place = accepted(kit, "valley")
            network.modem.type("network on")
            arrives(kit, place)
            assert len(network.up) == 1


def test_sms_interrupted_by_an_unplugged_modem_is_sent_again(tmp_path: Path) -> None:
    with country(tmp_path) as network, network.kit() as kit:
        reaches(kit, "ready")
        network.modem.type("stuck")
        place = accepted(kit, "half of it")
        network.expect("a Ctrl-Z is ignored")
        assert facts(kit)["smsToday"] == 1
        network.modem.type("unplug")
        reaches(kit, "absent")
        network.modem.type("plug")
        arrives(kit, place)
        assert contents(network.database) == ["half of it"]


def test_full_message_store_is_emptied_and_the_answer_arrives(tmp_path: Path) -> None:
    with country(tmp_path) as network:
        network.modem.type("full")
        network.expect("done")
        with network.kit() as kit:
            assert kit.post("there is room").body["status"] == "Delivered"
            assert facts(kit)["smsStrangers"] >= 20


def test_unknown_sender_is_ignored_and_a_forged_sms_is_kept(tmp_path: Path) -> None:
    with country(tmp_path) as network, network.kit() as kit:
        assert kit.post("one").body["status"] == "Delivered"
        _, _, whole = network.adapter.read(network.service.pushed(1))
        # Without the hub's possible additions, in one SMS, because a test cannot type more.
        answer = whole[:151]
        network.modem.type(f"sms +41791111111 {answer}")
        until(lambda: facts(kit)["smsStrangers"] == 1)
        network.modem.type(f"sms {HUB_NUMBER} {answer[:-4]}AAAA")
        letters = ("GET", "/api/status")
        until(lambda: kit.call(*letters).body["deadLetters"]["latest"])
        reason = kit.call(*letters).body["deadLetters"]["latest"]["reason"]
        assert "its tag is not from the hub" in reason


@pytest.mark.full
def test_sms_is_sent_again_after_a_late_failure_report(tmp_path: Path) -> None:
    with country(tmp_path) as network, network.kit(**{"sms-answer-within": "86400"}) as kit:
        network.loses_up = 1
        network.modem.type("undelivered")
        arrives(kit, accepted(kit, "again"))
        assert network.up == [network.up[0]] * 2


def test_repeated_sms_is_one_item_at_the_hub(tmp_path: Path) -> None:
    with country(tmp_path) as network, network.kit() as kit:
        assert kit.post("twice").body["status"] == "Delivered"
        for at in range(2):
            network._bring_up(network.up[0], f"twin {at}")
        assert kit.post("then").body["status"] == "Delivered"
        assert contents(network.database) == ["twice", "then"]


@pytest.mark.full
def test_sms_garbled_by_line_noise_is_read_again(tmp_path: Path) -> None:
    with country(tmp_path) as network, network.kit(**{"inbound-hook": HOOK}) as kit:
        assert kit.post("where are you?").body["status"] == "Delivered"
        network.modem.type("noise")
        network.expect("done")
        network.push("come down before noon")
        kit.expect("come down before noon")
        assert network.down == 2, "the hub has paid for one alone, beside its answer"


def test_daily_sms_limit_survives_restarts_and_spares_an_sos(tmp_path: Path) -> None:
    limit = {"sms-per-day": "2"}
    with country(tmp_path) as network:
        with network.kit(**limit) as kit:
            assert kit.post("first").body["status"] == "Delivered"
        with network.kit(**limit) as kit:
            accepted(kit, "second")
            reaches(kit, "the 2 SMS of today are sent (sms-per-day)")
            assert kit.call("POST", "/api/sos", {"text": "help"}).status == 201
            until(lambda: "help" in contents(network.database))
            assert "second" not in contents(network.database)


def test_wrong_pin_is_tried_once_over_restarts(tmp_path: Path) -> None:
    with country(tmp_path) as network:
        network.modem.type("pin 1234")
        network.expect("done")
        with network.kit() as kit:
            reaches(kit, "fault: the SIM needs its PIN: set sms-pin")
        for _ in range(4):
            with network.kit(**{"sms-pin": "9999"}) as kit:
                reaches(kit, "refuse")
        with network.kit(**{"sms-pin": "1234"}) as kit:
            assert kit.post("open").body["status"] == "Delivered"


@pytest.mark.full
def test_deaf_modem_is_reported_absent_and_recovers(tmp_path: Path) -> None:
    healed = tmp_path / "healed"
    more = {"sms-heal": "command", "sms-recovery-command": f"touch {healed}"}
    with country(tmp_path) as network:
        network.modem.type("deaf")
        network.expect("done")
        with network.kit(**more) as kit:
            reaches(kit, "absent: no answer to AT")
            until(healed.exists)
            network.modem.type("hears")
            assert kit.post("back").body["status"] == "Delivered"
            assert "command" in facts(kit)["smsHealing"]
