"""The receivers at the hub's own TAK server: private messages stay private, no phone can use
another's name, and the storage is limited.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fieldagent.extensions.tak import cot
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.cot import CotElement, CotEvent, CotPoint
from fieldagent.extensions.tak.events import ChatReceipt, GeoChat, PlacedMarker, Sighting, TakUnit
from fieldagent.extensions.tak.server.exchange import (
    ABSENT_PHONES_MAX,
    CHATS_MAX,
    KEPT_MAX,
    LASTS_MAX,
    PHONE_EVENT_RATE,
    Exchange,
    TakGuest,
)
from fieldagent.extensions.tak.server.outbox import BYTES_MAX, POSITION_BYTES_MAX, PhoneOutbox
from fieldagent.hub.contract import ItemResult

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
ADA = TakUnit("FA-1-1", "Ada")
BEN, CID, DOT = (TakUnit(f"ANDROID-{name}", name) for name in ("Ben", "Cid", "Dot"))
SPOT = CotPoint(46.5, 8.1)


class Room:
    """An exchange, and the event types that each phone in it has received, by uid."""

    def __init__(self) -> None:
        self.counts: Counter[ItemResult] = Counter()
        self.exchange = Exchange(self._note)
        self.heard: dict[str, list[str]] = {}
        self.guests: dict[str, TakGuest] = {}

    def _note(self, result: ItemResult, by: int = 1) -> None:
        self.counts[result] += by

    def enter(self, unit: TakUnit, member: int, now: float = 0.0) -> TakGuest:
        heard = self.heard.setdefault(unit.uid, [])

        def tell(kind: str, raw: bytes, of: str) -> bool:
            heard.append(kind)
            return True

        key = "" if unit == ADA else f"serial of {unit.uid}"
        guest = self.guests[unit.uid] = TakGuest(member, tell, key)
        if key:
            self.exchange.listen(guest, now)
        self.exchange.enter(guest, unit, now)
        return guest

    def say(self, unit: TakUnit, event: CotEvent, now: float = 0.0) -> dict[str, list[str]]:
        """Send an event as that phone. Return the types that each phone has received
        because of it.
        """
        before = {uid: len(heard) for uid, heard in self.heard.items()}
        raw = cot.encode(event)
        guest = self.guests[unit.uid]
        read = self.exchange.read(guest, raw, now)
        if read is not None:
            self.exchange.receive(guest, read, raw, now)
        new = {uid: heard[before[uid] :] for uid, heard in self.heard.items()}
        return {uid: kinds for uid, kinds in new.items() if kinds}


@pytest.fixture
def room() -> Room:
    room = Room()
    for member, unit in enumerate((ADA, BEN, CID, DOT), 1):
        room.enter(unit, member)
    return room


def here(who: TakUnit) -> CotEvent:
    seen = Sighting(SPOT, NOW, NOW + timedelta(minutes=5), tak.HOW_GPS, "")
    return tak.make_unit_event(who, seen, NOW, {"os": "34"})


def chat(sender: TakUnit, to: TakUnit, number: int = 1) -> CotEvent:
    return tak.make_chat(GeoChat(sender, to, f"m-{number}", "word"), NOW)


def marker(by: TakUnit, uid: str = "spot", *dests: CotElement) -> CotEvent:
    made = tak.make_marker(uid, by, PlacedMarker("hut", "", SPOT, NOW, ()), NOW)
    return replace(made, detail=(*made.detail, CotElement("marti", children=dests)))


def dest(**named: str) -> CotElement:
    return CotElement("dest", named)


def alert_for(who: TakUnit) -> CotEvent:
    """Return Ben's alert as a phone sends it to one contact only."""
    made = tak.make_alert(BEN, SPOT, NOW)
    to = CotElement("marti", children=(dest(callsign=who.callsign),))
    return replace(made, detail=(*made.detail, to))


def group(sender: TakUnit, *others: TakUnit) -> CotEvent:
    """Return a group message as ATAK writes it: the conversation is not a phone's uid."""
    said = chat(sender, TakUnit("a-conversation", "rope team"))
    names = {f"uid{number}": each.uid for number, each in enumerate((sender, *others))}
    about = said.find("__chat")
    assert about is not None
    named = replace(about, children=(CotElement("chatgrp", names),))
    return replace(said, detail=(named, *said.detail[1:]))


RECEIPT = tak.make_receipt(ChatReceipt(BEN, CID.uid, "m", False), CID, NOW)


@pytest.mark.parametrize(
    ("event", "hear"),
    [
        (here(BEN), {CID.uid: ["a-f-G-U-C"], DOT.uid: ["a-f-G-U-C"]}),
        (chat(BEN, CID), {CID.uid: ["b-t-f"]}),
        (chat(BEN, ADA), {ADA.uid: ["b-t-f"]}),
        (chat(BEN, tak.ALL_UNITS), {CID.uid: ["b-t-f"], DOT.uid: ["b-t-f"]}),
        (chat(BEN, TakUnit("ANDROID-away", "Eve")), {}),
        (group(BEN, CID, ADA), {CID.uid: ["b-t-f"], ADA.uid: ["b-t-f"]}),
        (RECEIPT, {CID.uid: ["b-t-f-d"]}),
        (marker(BEN), {CID.uid: ["b-m-p-s-m"], DOT.uid: ["b-m-p-s-m"]}),
        (marker(BEN, "spot", dest(callsign="Ada")), {ADA.uid: ["b-m-p-s-m"]}),
        (marker(BEN, "spot", dest(uid=DOT.uid)), {DOT.uid: ["b-m-p-s-m"]}),
        (marker(BEN, "spot", dest(callsign="nobody")), {}),
        # The hub hears an alert by the users' sessions.
        (tak.make_alert(BEN, SPOT, NOW), {each.uid: ["b-a-o-tbl"] for each in (ADA, CID, DOT)}),
        # Cid's phone gets it whatever name it contains, and the users bring it to the desk.
        (alert_for(CID), {each.uid: ["b-a-o-tbl"] for each in (ADA, CID)}),
        (alert_for(ADA), {ADA.uid: ["b-a-o-tbl"]}),
        (tak.make_alert(ADA, SPOT, NOW, cancels=True), {ADA.uid: ["b-a-o-can"]}),
        # In another phone's name.
        (chat(CID, DOT), {}),
        (chat(ADA, DOT), {}),
        (chat(TakUnit(BEN.uid, "Cid"), DOT), {}),
        (here(CID), {}),
        (here(ADA), {}),
        (here(TakUnit(BEN.uid, "Cid")), {}),
        (tak.make_alert(ADA, SPOT, NOW), {}),
        (tak.make_alert(CID, SPOT, NOW), {}),
        (tak.make_removal(CID.uid, BEN, NOW), {}),
        (tak.make_removal(f"{ADA.uid}-last", BEN, NOW), {}),
        (marker(BEN, f"{ADA.uid}-last"), {}),
    ],
)
def test_event_reaches_only_its_recipients(
    room: Room, event: CotEvent, hear: dict[str, list[str]]
) -> None:
    assert room.say(BEN, event) == hear


def test_later_phone_gets_current_positions_markers_and_chats(room: Room) -> None:
    eve = TakUnit("ANDROID-Eve", "Eve")
    for event in (here(BEN), here(BEN), marker(BEN, "gone"), marker(BEN), chat(BEN, tak.ALL_UNITS)):
        room.say(BEN, event)
    room.say(BEN, chat(BEN, CID, 2))
    room.say(CID, tak.make_removal("gone", CID, NOW))
    guest = room.enter(eve, 5, 1.0)
    assert room.heard[eve.uid] == ["a-f-G-U-C", "b-m-p-s-m", "b-t-f"]
    # Received events are not repeated, and outdated events are not sent at all.
    guest.received_number = room.exchange.last_number
    room.exchange.remove_phone(guest)
    room.say(BEN, chat(BEN, tak.ALL_UNITS, 3))
    room.heard[eve.uid].clear()
    room.enter(eve, 5, 301.0)
    assert room.heard[eve.uid] == ["b-m-p-s-m", "b-t-f"]
    assert not room.exchange.has(TakUnit("ANDROID-away", "x").uid)


OF_CID = f"{CID.uid}{tak.ALERT_SUFFIX}"


@pytest.mark.parametrize("known", ["since it was here", "from before"])
@pytest.mark.parametrize(
    "event",
    [
        here(CID),
        tak.make_alert(CID, SPOT, NOW),
        tak.make_alert(CID, SPOT, NOW, cancels=True),
        tak.make_removal(CID.uid, BEN, NOW),
        tak.make_removal(OF_CID, BEN, NOW),
        marker(BEN, CID.uid),
        marker(BEN, OF_CID),
    ],
)
def test_absent_phone_cannot_be_impersonated_or_changed(
    room: Room, event: CotEvent, known: str
) -> None:
    room.exchange.remove_phone(room.guests[CID.uid])
    if known == "from before":
        room = Room()
        for member, unit in (1, ADA), (2, BEN):
            room.enter(unit, member)
        room.exchange.remember_phones([("serial of his", CID.uid, 3)])
    assert room.say(BEN, event) == {}
    assert room.counts[ItemResult.REFUSED] == 1


def test_event_may_be_changed_by_its_users_other_phone_and_new_owner(room: Room) -> None:
    room.exchange.remove_phone(room.guests[CID.uid])
    room.enter(TakUnit("ANDROID-tablet", "Cid 2"), 3)
    assert room.say(TakUnit("ANDROID-tablet", ""), tak.make_removal(CID.uid, CID, NOW))
    room.enter(CID, 4)
    assert room.say(CID, here(CID))


def test_phone_may_change_its_callsign_but_not_use_another_phones(room: Room) -> None:
    guest = room.guests[BEN.uid]
    assert room.say(BEN, here(TakUnit(BEN.uid, "Lead")))
    assert guest.callsign == "Lead"
    room.exchange.remove_phone(guest)
    for unit, why in (
        (CID, "has its uid"),
        (TakUnit("x", "cid"), "the callsign 'cid' is already used"),
        (TakUnit("FA-2-1", "x"), "is one of the hub's"),
        (TakUnit("x" * 101, "x"), "100 characters"),
    ):
        assert why in room.exchange.find_objection(guest, unit)
    assert not room.exchange.find_objection(guest, TakUnit("ANDROID-Ben-2", "Lead"))


def test_flood_is_rate_limited_and_stored_events_are_bounded(room: Room) -> None:
    for number in range(PHONE_EVENT_RATE.burst + 50):
        room.say(BEN, chat(BEN, tak.ALL_UNITS, number))
    assert room.counts == {ItemResult.PASSED: PHONE_EVENT_RATE.burst, ItemResult.LIMITED: 50}
    for number in range(KEPT_MAX + 200):
        room.say(CID, marker(CID, f"spot {number}"), number * 1.0)
    eve = TakUnit("ANDROID-Eve", "Eve")
    room.enter(eve, 5)
    assert Counter(room.heard[eve.uid]) == {"b-m-p-s-m": KEPT_MAX, "b-t-f": CHATS_MAX}
    for number in range(ABSENT_PHONES_MAX + 10):
        room.exchange.remove_phone(
            room.enter(TakUnit(f"phone {number}", f"p{number}"), 6, LASTS_MAX * 2)
        )
    assert len(room.exchange._received_numbers) == ABSENT_PHONES_MAX


def test_malformed_event_is_counted_as_unreadable(room: Room) -> None:
    bomb = b'<!DOCTYPE x [<!ENTITY a "b">]><event uid="x">&a;</event>'
    assert room.exchange.read(room.guests[BEN.uid], bomb, 0.0) is None
    assert room.counts == {ItemResult.UNREADABLE: 1}


async def test_slow_phone_gets_only_the_newest_event_of_each_unit() -> None:
    outbox = PhoneOutbox()
    assert (
        outbox.add_event(b"old ", "a")
        and outbox.add_event(b"word ")
        and outbox.add_event(b"new ", "a")
    )
    assert await outbox.wait_for_events() == b"new word "
    assert outbox.add_event(bytes(POSITION_BYTES_MAX), "a")
    assert not outbox.add_event(b"x", "b")
    assert outbox.add_event(bytes(BYTES_MAX - POSITION_BYTES_MAX))
    assert not outbox.add_event(b"x")
    assert outbox.add_event(b"", "a")


@pytest.mark.parametrize("points", [395, 396, 1_000, 2_000])
def test_shape_with_many_points_reaches_other_phones(room: Room, points: int) -> None:
    links = [CotElement("link", {"point": f"47.{n:04},8.{n:04}"}) for n in range(points)]
    made = marker(BEN, "shape")
    shape = replace(made, type="u-d-f", detail=tuple(links))
    assert len(cot.encode(shape)) < cot.EVENT_BYTES_MAX
    assert room.say(BEN, shape) == {CID.uid: ["u-d-f"], DOT.uid: ["u-d-f"]}


def test_unreadable_event_is_logged_with_its_sender(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    guest = room.guests[BEN.uid]
    for second in range(3):
        assert room.exchange.read(guest, b"<event uid='x'></event>", 1_000.0 + second) is None
    assert room.counts[ItemResult.UNREADABLE] == 3
    (line,) = [each.message for each in caplog.records]
    assert "'Ben'" in line and "without uid or type" in line
