"""Summaries: for each station, the list of its items that this kit has. This module builds our
summaries, processes the summaries of other stations, and decides when to send ours. Pure.

A summary lists which of a station's newest item numbers this kit has. A summary is sent with other
entries or in a beacon. If this kit is missing items, the next beacon is sent soon. Otherwise
beacons are sent less and less often (the Trickle timer of RFC 6206). A beacon is left out if other
stations have sent the same content. If a summary shows that a station is missing an item, another
station repeats the item. A summary never lists an SOS, because each SOS is acknowledged separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from math import inf

from fieldagent.agent.channels.air_pace import CROWD_STATIONS
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.bitmap import SEVERAL_MAX
from fieldagent.wire.envelope import Ack, Entry, compute_fragments_digest

STATIONS_MAX = 1000
CONFIRMATIONS_MAX = 16
"""Number of the newest items that a summary confirms with a digest; older items are only listed."""
INTERVAL_MIN, INTERVAL_MAX = 60.0, 600.0
"""Seconds between beacons: the shortest time, after a change, and the longest time, without
changes."""
ASK_AFTER_S = 40.0
"""Seconds, with a random variation of half, until we report missing items. A station that hears our
report and is missing the same items does not send its own."""
POSTPONE_MAX_S = 600.0
"""Longest time in seconds between beacons in a dense network while their content is sent in other
packets."""
SLOWER_MAX = 3.0
"""Largest factor by which a dense network lengthens the wait for a beacon."""
ASKS_MAX = 8
"""Number of unanswered reports of a missing item, after which we assume that no station has the
item."""
FRESH_S = 3600.0
"""Seconds for which beacons list a station after its last new item. A kit that comes into range
later gets all summaries."""
LISTED_ITEMS_MAX = 2 * SEVERAL_MAX
"""Maximum number of items that are remembered for each station: those that a summary lists, and the
same number of others."""
RIDING_SUMMARIES_MAX = 3
"""Maximum number of summaries that are sent in one packet with other entries."""


@dataclass(slots=True)
class _StationSummary:
    stored_digests: dict[int, bytes] = field(default_factory=dict)
    """Digests of the items that this kit has, by item number."""
    unlisted: set[int] = field(default_factory=set)
    """Numbers of items that this kit has but does not list, because another kit uses our station
    number too."""
    missing: dict[int, int] = field(default_factory=dict)
    """Numbers of items that another station has and we are missing; for each, the number of our
    reports."""
    is_sent_by_other: bool = False
    """True if another station has sent the same summary since the last beacon."""
    is_asked_by_other: bool = False
    """True if another station has reported the same missing items."""
    changed: bool = False
    """True if the summary has changed since we last sent it."""
    asked_at: float = -inf
    fresh_until: float = -inf
    """Time until which beacons list this station."""

    newest: int = 0
    """Highest of the `SEVERAL_MAX` numbers that a summary lists."""
    fixed_until: float = -inf
    """Time until which lower numbers do not move the listed range back. After this time they do,
    because the high number may have been forged, or may have come from another kit with the same
    station number."""

    def open(self) -> list[int]:
        """Return the numbers of missing items that we still ask for."""
        return [number for number, count in self.missing.items() if count < ASKS_MAX]

    def is_asking(self) -> bool:
        return bool(self.open())

    def get_listed_numbers(self) -> range:
        """Return the range of numbers that a summary lists. Missing numbers move the range up only
        while we ask for them, because only another station claims that they exist.
        """
        newest = max((self.newest, *self.open()))
        return range(max(0, newest - SEVERAL_MAX) + 1, newest + 1)

    def move(self, item_number: int, now: float) -> None:
        """Record that the item with this number has arrived, and move the listed range if
        necessary.
        """
        if item_number > self.newest or (
            item_number not in self._find_last() and now >= self.fixed_until
        ):
            self.newest = item_number
        if item_number in self._find_last():
            self.fixed_until = now + FRESH_S

    def _find_last(self) -> range:
        return range(self.newest - SEVERAL_MAX + 1, self.newest + 1)

    def forget_old(self) -> None:
        first = self.get_listed_numbers().start
        for number in [each for each in self.missing if each < first]:
            del self.missing[number]
        while len(self.missing) > LISTED_ITEMS_MAX:
            del self.missing[next(iter(self.missing))]
        last = self._find_last()
        elsewhere = [each for each in self.stored_digests if each not in last]
        for number in elsewhere[: max(0, len(self.stored_digests) - LISTED_ITEMS_MAX)]:
            del self.stored_digests[number]
        self.unlisted = {each for each in self.unlisted if each >= last.start}


class Summaries:
    """Summaries at one station, whose own number is `station`. `random` returns a number from 0 to
    1. All times must be of the same clock.
    """

    def __init__(self, station: int, random: Callable[[], float]) -> None:
        self._station = station
        self._random = random
        self._stations: dict[int, _StationSummary] = {}
        self._interval = INTERVAL_MIN
        self._slower = 1.0
        """Factor by which the wait for a beacon is lengthened."""
        self._due = inf
        self._latest = -inf
        """Time until which the next beacon is put off if its content is sent in other packets."""
        self._beacon: list[int] = []
        """Stations that the current beacon must still list."""

    def set_crowd(self, crowd: int) -> None:
        """Set the number of stations in range. They share the work of sending summaries."""
        self._slower = min(SLOWER_MAX, max(1.0, crowd / CROWD_STATIONS))

    @property
    def _in_crowd(self) -> bool:
        return self._slower > 1

    def record_item(self, station: int, item_number: int, digest: bytes, now: float) -> None:
        """Record that this kit has the item: it has arrived, or it is our own item and has left."""
        summary = self._get_summary(station)
        if summary.stored_digests.get(item_number) == digest:
            return
        summary.stored_digests[item_number] = digest
        summary.missing.pop(item_number, None)
        summary.unlisted.discard(item_number)
        summary.is_sent_by_other, summary.changed, summary.fresh_until = False, True, now + FRESH_S
        summary.move(item_number, now)
        summary.forget_old()
        self._hasten(now, INTERVAL_MIN)

    def hide_item(self, station: int, item_number: int) -> None:
        """Record that this kit has the item but must not list it, and stop asking for the item."""
        summary = self._get_summary(station)
        summary.missing.pop(item_number, None)
        if item_number not in summary.stored_digests:
            summary.unlisted.add(item_number)

    def load(self, items: Iterable[tuple[int, int, bytes]], now: float) -> None:
        """Load the items from before a restart. Each is given by its station, number and digest."""
        for station, number, digest in items:
            self.record_item(station, number, digest, now)

    def process_summary(self, summary: Entry, now: float) -> list[int]:
        """Process another station's summary. Return the numbers of the items that the other station
        is missing and this kit has.
        """
        assert isinstance(summary.content, Ack)
        first, numbers = summary.sequence, {*list_numbers(summary)}
        station = summary.content.station
        known = self._get_summary(station)
        window = known.get_listed_numbers()
        new_numbers = {
            each
            for each in numbers - known.stored_digests.keys() - known.unlisted
            if each >= window.start
        }
        if station == self._station:
            # The summary is about our own items. Do not ask for items that we do not have: they are
            # from a lost journal.
            new_numbers.clear()
        if new_numbers - known.missing.keys():
            known.missing |= dict.fromkeys(new_numbers - known.missing.keys(), 0)
            known.fresh_until = now + FRESH_S
            known.forget_old()
            known.is_asked_by_other = False
            # In a dense network, new items are missing every few seconds. So do not move a beacon
            # that is due soon anyway.
            within = ASK_AFTER_S * self._slower
            if not self._in_crowd or self._due > now + 1.5 * within:
                self._due = min(self._due, now + within * (0.5 + self._random()))
        elif (
            (open_numbers := known.open())
            and first <= min(open_numbers)
            and not numbers.intersection(open_numbers)
        ):
            known.is_asked_by_other = True
        if numbers.issuperset(
            each for each in known.stored_digests if each >= first and each in window
        ):
            known.is_sent_by_other = True
        # A station whose numbers end far below ours may have missed many items. Do not repeat them
        # all: our summary shows our numbers, and that station may ask for the items.
        reach = range(first, first + 2 * SEVERAL_MAX)
        return sorted(
            each for each in known.stored_digests if each in reach and each not in numbers
        )

    def find_digest(self, station: int, item_number: int) -> bytes | None:
        """Return the digest of the item. Return None if this kit does not have the item, or if the
        item is not one of the newest.
        """
        summary = self._stations.get(station)
        return None if summary is None else summary.stored_digests.get(item_number)

    def repeat_for_returned_station(self, now: float, limit_s: float) -> None:
        """Send all summaries again within `limit_s` seconds, because a station that has returned
        may not know them.
        """
        for each in self._stations.values():
            each.is_sent_by_other = False
            each.fresh_until = max(each.fresh_until, now + INTERVAL_MAX)
        self._interval = INTERVAL_MIN
        if self._stations:
            self._hasten(now, limit_s)

    def compute_due_time(self) -> float:
        """Return the time of the next beacon, on trio's clock."""
        return self._due

    def begin(self, now: float) -> None:
        """Begin the beacon that is due, and set the time of the next beacon."""
        asks_for_items = False
        self._beacon, self._latest = [], now + POSTPONE_MAX_S
        for number, each in self._stations.items():
            asks_for_items |= each.is_asking()
            if now < each.fresh_until and self._is_news(each):
                self._beacon.append(number)
            each.is_sent_by_other = each.is_asked_by_other = False
        self._interval = INTERVAL_MIN if asks_for_items else min(INTERVAL_MAX, 2 * self._interval)
        lives = any(now < each.fresh_until for each in self._stations.values())
        waits = min(INTERVAL_MAX, self._interval * self._slower)
        self._due = now + waits * (0.5 + 0.5 * self._random()) if lives else inf

    def list_due_stations(self, now: float, *, has_other_content: bool) -> list[int]:
        """Return the stations whose summaries the next packet must contain. These are the stations
        of the beacon. If the packet `has_other_content`, they also include stations with changes or
        missing items.
        """
        summaries = self._stations
        self._beacon = [n for n in self._beacon if n in summaries and self._is_news(summaries[n])]
        stations = self._beacon
        if has_other_content:
            ride = (
                n
                for n, each in summaries.items()
                if self._can_ride(each, now) and n not in stations
            )
            stations = [*stations, *sorted(ride, key=lambda n: not summaries[n].is_asking())][
                :RIDING_SUMMARIES_MAX
            ]
        return [*stations]

    def _can_ride(self, station_summary: _StationSummary, now: float) -> bool:
        """Return True if the summary may be sent with other entries. In a dense network, another
        station may have sent the same summary, or the last report of missing items may be too
        recent. Then return False.
        """
        if not self._in_crowd:
            return station_summary.changed
        if station_summary.is_asking():
            return (
                station_summary.changed
                or now - station_summary.asked_at >= ASK_AFTER_S * self._slower
            )
        return station_summary.changed and not station_summary.is_sent_by_other

    def _is_news(self, station_summary: _StationSummary) -> bool:
        return self._is_still_asking(station_summary) or not station_summary.is_sent_by_other

    @staticmethod
    def _is_still_asking(station_summary: _StationSummary) -> bool:
        """Return True if this kit is missing items and no other station has reported the same
        items.
        """
        return station_summary.is_asking() and not station_summary.is_asked_by_other

    def mark_sent(self, station: int, now: float) -> None:
        """Record that this kit has sent the summary of the items of `station`, so that no other
        summary of them is due soon.
        """
        summary = self._get_summary(station)
        summary.is_sent_by_other = summary.is_asked_by_other = True
        summary.changed = False
        if now - summary.asked_at >= ASK_AFTER_S / 2:
            summary.asked_at = now
            for number in summary.missing:
                summary.missing[number] += 1
        self._beacon = [each for each in self._beacon if each != station]
        if self._in_crowd and not any(map(self._is_still_asking, self._stations.values())):
            ask_again_at = now + ASK_AFTER_S * self._slower * (0.5 + self._random())
            self._due = max(self._due, min(self._latest, ask_again_at))

    def make_summary(self, station: int) -> Entry | None:
        """Return the summary of `station`, or None if it would be empty."""
        summary = self._stations.get(station)
        if summary is None:
            return None
        numbers = summary.get_listed_numbers()
        missing_numbers = [each for each in summary.open() if each in numbers]
        present = sorted(each for each in summary.stored_digests if each in numbers)
        if not present and not missing_numbers:
            return None
        first = min((*present, *missing_numbers), default=0)
        arrived_offsets = frozenset(number - first for number in present)
        digest = compute_fragments_digest(
            summary.stored_digests[number] for number in present[-CONFIRMATIONS_MAX:]
        )
        return Entry(first, Ack(station, 0, arrived_offsets, digest=digest if present else b""))

    def _get_summary(self, station: int) -> _StationSummary:
        summary = self._stations.pop(station, None) or _StationSummary()
        self._stations[station] = summary
        while len(self._stations) > STATIONS_MAX:
            del self._stations[next(iter(self._stations))]
        return summary

    def _hasten(self, now: float, limit_s: float) -> None:
        if limit_s >= INTERVAL_MIN:
            if self._interval <= INTERVAL_MIN and self._due < inf:
                return
            self._interval = limit_s
            limit_s *= self._slower
        self._due = min(
            self._due, now + limit_s * (0.5 + self._random() * (limit_s < INTERVAL_MIN))
        )


def list_numbers(summary: Entry) -> list[int]:
    """Return the item numbers that a summary lists, in ascending order."""
    assert isinstance(summary.content, Ack)
    return [summary.sequence + index for index in sorted(summary.content.arrived)]


def list_confirmed(summary: Entry) -> list[int]:
    """Return the listed numbers that the summary's digest confirms."""
    return list_numbers(summary)[-CONFIRMATIONS_MAX:]
