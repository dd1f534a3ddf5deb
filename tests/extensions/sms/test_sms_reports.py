"""Late, doubled or missing reports of the mobile network about an SMS, and the kit's reaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.extensions.sms.network import Country, country, facts, reaches
from tests.extensions.sms.test_sms_faults import accepted, arrives, story
from tests.extensions.sms.test_sms_journey import contents
from tests.processes import Agent, until

STRANGER = "+41791111111"
TELEPHONE_HAS_IT = "the hub's telephone has an SMS; the hub has not confirmed it yet"
DOUBTFUL = "the hub has not answered the SMS in time: sending again"


def all_is_read(network: Country, kit: Agent) -> None:
    """Wait until the store is read. The kit reads the store in order, so it has read all SMS before
    the one that this function adds.
    """
    before = facts(kit)["smsStrangers"]
    network.modem.type(f"sms {STRANGER} is it?")
    until(lambda: facts(kit)["smsStrangers"] == before + 1)


def said(kit: Agent, text: str) -> int:
    return sum(text in line for line in kit.output())


@contextmanager
def kit_of(network: Country, offers: str, **settings: str) -> Iterator[Agent]:
    """Yield a kit whose modem offers these values of <ds> in +CNMI: it passes on reports if 2 is
    missing, otherwise it stores them.
    """
    network.modem.type(f"offers {offers}")
    with network.kit(**settings) as kit:
        reaches(kit, "ready")
        yield kit


@pytest.mark.parametrize("offers", ["012", "01"])
def test_late_report_is_assigned_to_its_own_copy(tmp_path: Path, offers: str) -> None:
    with country(tmp_path) as network, kit_of(network, offers) as kit:
        network.modem.type("reports off")
        network.stop_up()
        place = accepted(kit, "late")
        until(lambda: len(network.up) == 2)
        assert DOUBTFUL in story(kit, place)
        network.modem.type("report 1 failed")
        kit.expect("a repeated SMS was not delivered (status 46)")
        network.modem.type("report 2 delivered")
        kit.expect(TELEPHONE_HAS_IT)
        assert kit.call("GET", place).body["status"] is None
        network.go_on()
        arrives(kit, place)
        assert contents(network.database) == ["late"]


def test_report_after_the_hubs_answer_changes_nothing(tmp_path: Path) -> None:
    with country(tmp_path) as network, network.kit() as kit:
        reaches(kit, "ready")
        network.modem.type("reports off")
        assert kit.post("answered").body["status"] == "Delivered"
        network.modem.type("report 1 failed")
        all_is_read(network, kit)
        assert facts(kit)["smsUnderWay"] == 0
        assert not said(kit, "not delivered") + said(kit, "failed to deliver")
        assert len(network.up) == 1


@pytest.mark.full
def test_missing_report_does_not_stop_repeats_of_an_sos(tmp_path: Path) -> None:
    with country(tmp_path) as network, network.kit() as kit:
        reaches(kit, "ready")
        network.modem.type("reports off")
        network.stop_up()
        # For an SOS, each copy waits for a third of the ten seconds.
        assert kit.call("POST", "/api/sos", {"text": "help"}).status == 201
        until(lambda: len(network.up) >= 4)
        assert not said(kit, TELEPHONE_HAS_IT)
        network.go_on()
        until(lambda: "help" in contents(network.database))
        assert contents(network.database).count("help") == 1
        until(lambda: facts(kit)["queued"] == 0)


@pytest.mark.parametrize("offers", ["012", "01"])
def test_repeated_report_is_logged_once(tmp_path: Path, offers: str) -> None:
    day = {"sms-answer-within": "86400"}
    with country(tmp_path) as network, kit_of(network, offers, **day) as kit:
        network.modem.type("reports off")
        network.stop_up()
        place = accepted(kit, "twice")
        until(lambda: network.up)
        for what in ("trying", "delivered", "delivered", "failed"):
            network.modem.type(f"report 1 {what}")
        all_is_read(network, kit)
        assert said(kit, TELEPHONE_HAS_IT) == 1
        assert not said(kit, "failed to deliver")
        network.go_on()
        arrives(kit, place)
        assert len(network.up) == 1


def test_unconfirmed_report_is_not_logged_as_delivered(tmp_path: Path) -> None:
    with country(tmp_path) as network, network.kit(**{"sms-answer-within": "86400"}) as kit:
        reaches(kit, "ready")
        network.modem.type("reports off")
        network.stop_up()
        place = accepted(kit, "who knows")
        until(lambda: network.up)
        network.modem.type("report 1 unconfirmed")
        all_is_read(network, kit)
        assert not said(kit, TELEPHONE_HAS_IT)
        network.go_on()
        arrives(kit, place)
