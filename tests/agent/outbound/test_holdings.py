"""What a packet with a number far ahead does to what is known of a station, and for how long."""

from __future__ import annotations

from fieldagent.agent.outbound.holdings import (
    ASK_AFTER,
    ASKS_MAX,
    FRESH,
    Holdings,
    confirmed_by,
    numbers_of,
)
from fieldagent.wire.envelope import Ack, Entry

OWN, OTHER = 1, 7
FAR = 2**62
DIGEST = b"item"


def holding(first: int, *numbers: int) -> Entry:
    """Return what another says to have of `OTHER`."""
    return Entry(first, Ack(OTHER, 0, frozenset(n - first for n in numbers), digest=DIGEST))


def with_items(*numbers: int) -> Holdings:
    found = Holdings(OWN, lambda: 0.5)
    for number in numbers:
        found.note(OTHER, number, DIGEST, 0.0)
    return found


def said(holdings: Holdings) -> list[int]:
    entry = holdings.holding(OTHER)
    return [] if entry is None else confirmed_by(entry)


def test_a_claim_far_ahead_hides_nothing_for_good() -> None:
    holdings, now = with_items(1, 2, 3), 0.0
    assert holdings.hear(holding(FAR, FAR), now) == []
    for _ in range(ASKS_MAX):
        asking = holdings.holding(OTHER)
        assert asking is not None and (asking.sequence, numbers_of(asking)) == (FAR, [])
        now += ASK_AFTER
        holdings.said(OTHER, now)
    holdings.note(OTHER, 4, DIGEST, now)
    assert said(holdings) == [1, 2, 3, 4], "nobody gave it"
    assert holdings.hear(holding(FAR, FAR), now) == [], "it is not asked for anew"
    assert said(holdings) == [1, 2, 3, 4]
    assert holdings.hear(holding(4, 4, 5), now) == []
    entry = holdings.holding(OTHER)
    assert entry is not None and holdings.hear(holding(1, 1, 2), now) == [3, 4]


def test_what_is_here_is_given_while_a_claim_stands() -> None:
    holdings = with_items(1, 2, 3)
    holdings.hear(holding(FAR, FAR), 0.0)
    holdings.note(OTHER, 4, DIGEST, 1.0)
    assert holdings.digest(OTHER, 4) == DIGEST
    assert holdings.hear(holding(1, 1, 2), 2.0) == [3, 4]


def test_an_item_far_ahead_ends_with_the_hour() -> None:
    holdings = with_items(1, 2, FAR)
    holdings.note(OTHER, 3, DIGEST, FRESH - 1)
    assert said(holdings) == [FAR]
    assert holdings.hear(holding(1, 1, 2), FRESH - 1) == [3], "what is here is given all the same"
    holdings.note(OTHER, 4, DIGEST, FRESH)
    assert said(holdings) == [1, 2, 3, 4]
    holdings.hear(holding(FAR, FAR), FRESH)
    assert said(holdings) == [1, 2, 3, 4], "what has come is not asked for again"
    for number in range(5, 500):
        holdings.note(OTHER, number, DIGEST, FRESH)
    assert said(holdings) == [*range(484, 500)]


def test_a_late_item_does_not_hide_what_has_come_lately() -> None:
    holdings = with_items(*range(100, 200))
    holdings.note(OTHER, 1, DIGEST, FRESH - 1)
    assert said(holdings) == [*range(184, 200)]


def test_claims_take_bounded_room() -> None:
    holdings, now = with_items(1), 0.0
    for step in range(1, 50):
        holdings.hear(holding(step * 1000, *range(step * 1000, step * 1000 + 64)), now)
        now += ASK_AFTER
        holdings.said(OTHER, now)
    for _ in range(ASKS_MAX):
        now += ASK_AFTER
        holdings.said(OTHER, now)
    assert said(holdings) == [1]
