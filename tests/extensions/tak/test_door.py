"""A flood at a TAK server ends at the door and is counted. Events from other bridges are not
accepted.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.bridge.door import (
    AWAY_AFTER_S,
    OF_ALL,
    OF_ONE,
    PHONES_MAX,
    SEEN_AGAIN_S,
    UNITS,
    EventAdmission,
)
from fieldagent.extensions.tak.cot import CotEvent, CotPoint, encode
from fieldagent.extensions.tak.events import ChatReceipt, GeoChat, PlacedMarker, Sighting, TakUnit
from fieldagent.hub.contract import ItemResult

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
ADA, OTHER = TakUnit("FA-1234-1", "Ada"), TakUnit("FA-99-1", "Ben")
PROGRAM = {"device": "phone"}


@pytest.fixture
def counts() -> Counter[ItemResult]:
    return Counter()


@pytest.fixture
def door(counts: Counter[ItemResult]) -> EventAdmission:
    def note(result: ItemResult, by: int = 1) -> None:
        counts[result] += by

    return EventAdmission(note, lambda: 0.0, markers=True)


def phone(number: int) -> TakUnit:
    return TakUnit(f"ANDROID-{number}", f"PHONE {number}")


def here(who: TakUnit) -> bytes:
    seen = Sighting(CotPoint(46.5, 8.1), NOW, NOW, tak.HOW_GPS, "")
    return foreign(tak.make_unit_event(who, seen, NOW, PROGRAM))


def foreign(event: CotEvent) -> bytes:
    """Return the event without a bridge's mark."""
    kept = tuple(each for each in event.detail if each.name != tak.FLOW_TAGS_ELEMENT)
    return encode(CotEvent(event.uid, event.type, NOW, NOW, NOW, "h-e", event.point, kept))


def chat(who: TakUnit, to: TakUnit = ADA, number: int = 1) -> bytes:
    return foreign(tak.make_chat(GeoChat(who, to, f"m-{number}", "word"), NOW))


def admit(
    door: EventAdmission, raw: bytes, now: float = 0.0, kind: str = tak.CHAT
) -> CotEvent | None:
    return door.admit(kind, raw, ADA.uid, now)


def test_position_events_of_200_phones_are_counted_and_not_parsed(
    door: EventAdmission, counts: Counter[ItemResult]
) -> None:
    events = [here(phone(number)) for number in range(200)]
    looked = [
        door.find_returned_unit(raw, 1_000.0 + second) for second in range(20) for raw in events * 2
    ]
    # Each sender is noted once, at its first event. The rest is not even parsed.
    assert len([each for each in looked if each is not None]) == 200
    assert counts[ItemResult.OTHER] == len(looked) == 8_000
    assert door.find_returned_unit(events[0], 1_000.0 + SEEN_AGAIN_S) is None
    assert door.find_returned_unit(events[0], 2_000.0 + AWAY_AFTER_S) is not None


def test_new_connection_treats_every_phone_as_returned(door: EventAdmission) -> None:
    assert door.find_returned_unit(here(phone(1)), 1_000.0) is not None
    assert door.find_returned_unit(here(phone(1)), 1_040.0) is None
    door.forget_units()
    assert door.find_returned_unit(here(phone(1)), 1_041.0) is not None


def test_number_of_remembered_phones_is_limited(door: EventAdmission) -> None:
    for number in range(PHONES_MAX + 500):
        door.find_returned_unit(here(phone(number)), 1_000.0 + number)
        admit(door, chat(phone(number)), 1_000.0 + number)
    assert len(door._seen) == len(door._rates) == PHONES_MAX


def test_look_ups_of_unknown_phones_are_rate_limited(
    door: EventAdmission, counts: Counter[ItemResult]
) -> None:
    results = [door.find_returned_unit(here(phone(number)), 1_000.0) for number in range(1_000)]
    assert len([each for each in results if each is not None]) == UNITS.burst
    assert counts == {ItemResult.OTHER: UNITS.burst, ItemResult.LIMITED: 1_000 - UNITS.burst}


def test_chats_beyond_the_rate_limit_are_dropped(
    door: EventAdmission, counts: Counter[ItemResult]
) -> None:
    taken = [admit(door, chat(phone(1), number=number)) for number in range(100)]
    assert len([each for each in taken if each]) == OF_ONE.burst
    assert counts[ItemResult.LIMITED] == 100 - OF_ONE.burst
    assert admit(door, chat(phone(2))) is not None
    many = [admit(door, chat(phone(number))) for number in range(3, 500)]
    assert len([each for each in many if each]) == OF_ALL.burst - OF_ONE.burst - 1
    assert admit(door, chat(phone(1)), 3_600.0) is not None


MARKER = tak.make_marker("x", phone(1), PlacedMarker("hut", "", CotPoint(46.5, 8.1), NOW, ()), NOW)
LOST = chat(phone(1)).replace(b"</remarks>", b"")


def tick(who: TakUnit) -> bytes:
    return foreign(tak.make_receipt(ChatReceipt(who, ADA.uid, "m", True), ADA, NOW))


@pytest.mark.parametrize(
    ("kind", "raw", "became"),
    [
        (tak.CHAT, chat(OTHER), ItemResult.OWN),
        (tak.CHAT, encode(tak.make_chat(GeoChat(phone(1), ADA, "m", "x"), NOW)), None),
        (tak.CHAT, encode(tak.make_chat(GeoChat(OTHER, ADA, "m", "x"), NOW)), ItemResult.OWN),
        (tak.CHAT, chat(phone(1), tak.ALL_UNITS), ItemResult.OTHER),
        (tak.CHAT, chat(phone(1), TakUnit(f"{ADA.uid}1", "Adam")), ItemResult.OTHER),
        (tak.CHAT, LOST, ItemResult.UNREADABLE),
        (
            tak.ON_PHONE,
            tick(phone(1)),
            None,
        ),
        (
            tak.ON_PHONE,
            tick(OTHER),
            ItemResult.OWN,
        ),
        (tak.ALERT, foreign(tak.make_alert(ADA, CotPoint(1, 1), NOW)), ItemResult.OTHER),
        (tak.CANCEL, foreign(tak.make_alert(ADA, CotPoint(1, 1), NOW, cancels=True)), None),
        (
            tak.CANCEL,
            encode(tak.make_alert(ADA, CotPoint(1, 1), NOW, cancels=True)),
            ItemResult.OWN,
        ),
        (tak.MARKER, foreign(MARKER), ItemResult.OTHER),
        ("t-x-takp-v", b"<event type='t-x-takp-v'></event>", ItemResult.OTHER),
        ("u-d-f", foreign(MARKER), ItemResult.OTHER),
    ],
)
def test_event_is_admitted_by_its_type_and_origin(
    door: EventAdmission,
    counts: Counter[ItemResult],
    kind: str,
    raw: bytes,
    became: ItemResult | None,
) -> None:
    event = admit(door, raw, 1_000.0, kind)
    assert (event is None) == (became is not None)
    assert counts == ({} if became is None else {became: 1})


def test_replies_between_two_machines_are_rate_limited(door: EventAdmission) -> None:
    assert [door.admit_reply("a", float(second)) for second in range(1_000, 1_601, 200)] == [
        *(True, False, False, True)
    ]
