"""Waves of an update, on both engines: the times of the offers, and the conditions that
stop them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from fieldagent.hub.access import directory
from fieldagent.hub.field import update_offers
from fieldagent.hub.field.update_offers import PlannedKit
from fieldagent.hub.records import audit, contact, kit_report
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.wire.kit_note import ZIPAPP, KitReport, OfferReport, ProgramOffer

URL = "https://example.org/2.pyz"
WITHIN = 7_200.0


class Fleet:
    """Kits 1 to 4: the first two are one wave each, and the others are the third."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 1_000.0
        store.run_once(self._make)
        self.number = store.run_once(self._offer)

    def _make(self, db: Db) -> None:
        workspace = directory.add_workspace(db, "Alps", now=0.0)
        user = directory.add_user(db, workspace, "ada", now=0.0)
        for number in (1, 2, 3, 4):
            directory.add_device(db, workspace, user, directory.NewDevice(f"kit-{number}"), now=0.0)
            self.link(db, number, "1")

    def link(self, db: Db, device: int, version: str, installed: str = ZIPAPP) -> None:
        contact.record_contact(db, device, "ip", 0.0)
        contact.store_version(db, device, version)
        kit_report.store_report(db, device, KitReport(installed=installed), 0.0)

    def _offer(self, db: Db) -> int:
        waves = [PlannedKit(1, 1, "planned"), PlannedKit(2, 2, "planned")]
        last = [PlannedKit(device, 3, "planned") for device in (3, 4)]
        kits = [*waves, *last]
        return update_offers.offer(db, 1, "2", URL, kits, within=WITHIN, now=self.now)

    def told(self) -> set[int]:
        """Return the kits that have the offer now."""
        return {*self.store.run_once(lambda db: update_offers.list_offers(db, [1, 2, 3, 4]))}

    def tells(self, device: int, state: str, why: str = "") -> list[str]:
        report = OfferReport(self.number, state, why)
        self.store.run_once(lambda db: update_offers.record_report(db, device, report, self.now))
        return self.look()

    def look(self) -> list[str]:
        return self.store.run_once(lambda db: update_offers.continue_offers(db, self.now))

    def state(self) -> tuple[str, str]:
        (offer,) = self.store.run_once(lambda db: update_offers.list_all(db, 1, 9))
        return offer["state"], offer["why"]

    def states(self) -> list[str]:
        kits = self.store.run_once(lambda db: update_offers.list_kits(db, 1, None))
        return [kit["state"] for kit in kits]


@pytest.fixture
def fleet(database: str) -> Iterator[Fleet]:
    store = open_store(database)
    yield Fleet(store)
    store.close()


def test_update_wave_starts_after_all_kits_of_the_previous_wave_succeed(fleet: Fleet) -> None:
    offers = fleet.store.run_once(lambda db: update_offers.list_offers(db, [1, 1, 2]))
    assert offers == {1: ProgramOffer(fleet.number, "2", URL)}
    for state in ("waiting", "trial"):
        assert fleet.tells(1, state) == []
        assert fleet.told() <= {1}
    fleet.tells(1, "taken")
    assert fleet.told() == {2}
    fleet.tells(2, "taken")
    assert fleet.told() == {3, 4}
    fleet.tells(4, "taken")
    assert (fleet.told(), fleet.state()) == ({3}, ("under way", ""))
    fleet.tells(3, "taken")
    assert (fleet.told(), fleet.state()) == (set(), ("done", ""))
    lines = fleet.store.run_once(lambda db: audit.list_latest(db, 9, 1))
    assert [(line["actor"], line["action"]) for line in lines if "update" in line["action"]] == [
        ("hub", "update done"), *[("hub", "update wave")] * 3, ("administration", "update offer"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("back", "kit-2 fell back: no agent"),
        ("refused", "kit-2 refused it: no agent"),
    ],
)
def test_failed_kit_stops_the_update(fleet: Fleet, state: str, words: str) -> None:
    fleet.tells(1, "taken")
    (warning,) = fleet.tells(2, state, "no agent")
    assert warning.startswith(f"The update to 2 stopped: {words}")
    assert fleet.state() == ("stopped", words)
    assert (fleet.told(), fleet.look()) == (set(), [])
    assert fleet.states() == ["taken", state, "planned", "planned"]


def test_late_kit_stops_the_update(fleet: Fleet) -> None:
    fleet.now += 10 * WITHIN  # the kit has not started, and may be switched off
    assert (fleet.look(), fleet.told()) == ([], {1})
    fleet.tells(1, "waiting")
    fleet.now += WITHIN
    fleet.tells(1, "trial")
    assert fleet.state() == ("under way", "")
    fleet.now += 1
    fleet.look()
    assert fleet.state() == ("stopped", "kit-1 is late: it has not come back within 120 min")
    # The result of the late kit is shown in any case.
    fleet.tells(1, "taken")
    assert fleet.states()[0] == "taken"
    assert fleet.told() == set()


@pytest.mark.parametrize("state", ["waiting", "trial"])
def test_disabled_kit_does_not_block_the_update(fleet: Fleet, state: str) -> None:
    fleet.tells(1, state)
    revoke = partial(directory.set_disabled, table="device", id_=1, when=fleet.now)
    fleet.store.run_once(lambda db: revoke(db, now=fleet.now))
    fleet.look()
    assert (fleet.told(), fleet.states()[0]) == ({2}, "left out")
    fleet.now += 10 * WITHIN
    fleet.look()
    assert fleet.state() == ("under way", "")


def test_unfit_or_updated_kit_does_not_block_the_update(fleet: Fleet) -> None:
    fleet.store.run_once(lambda db: fleet.link(db, 1, "2"))
    fleet.store.run_once(lambda db: fleet.link(db, 2, "1", "package"))
    fleet.look()
    assert fleet.told() == {3, 4}
    assert fleet.states() == ["taken", "left out", "offered", "offered"]


def test_report_of_another_offer_or_unknown_state_is_ignored(fleet: Fleet) -> None:
    for report in (OfferReport(fleet.number - 1, "back", "x"), OfferReport(fleet.number, "done")):
        fleet.store.run_once(partial(update_offers.record_report, device=1, report=report, now=0.0))
    assert fleet.look() == []
    assert fleet.states()[0] == "offered"


def test_update_stopped_by_hand_is_offered_again_with_a_higher_number(fleet: Fleet) -> None:
    assert fleet.store.run_once(lambda db: update_offers.find_active_offer(db, 1)) == fleet.number
    assert fleet.store.run_once(lambda db: update_offers.stop_offer(db, 1, 1.0)) == fleet.number
    assert fleet.store.run_once(lambda db: update_offers.stop_offer(db, 1, 1.0)) is None
    assert (fleet.told(), fleet.state()) == (set(), ("stopped", "by hand"))
    assert fleet.store.run_once(fleet._offer) > fleet.number
    assert fleet.told() == {1}


def test_unfit_kit_has_a_reason(fleet: Fleet) -> None:
    def why(device: int) -> str:
        kits = fleet.store.run_once(lambda db: update_offers.list_candidates(db, 1, 0.0))
        return next(update_offers.explain_unfit(kit) for kit in kits if kit.device == device)

    assert why(1) == ""
    for installed, words in (
        ("package", "`sudo fieldagent update` on the kit"),
        ("sources", "only a zipapp can be replaced"),
        ("", "is too old for offered updates"),
    ):
        fleet.store.run_once(partial(fleet.link, device=1, version="1", installed=installed))
        assert words in why(1)
    fleet.store.run_once(lambda db: directory.set_disabled(db, "device", 2, 5.0, now=5.0))
    assert why(2) == "it is disabled"
