"""What is here of each station's items, what others say that they have, and when to say so. Pure.

A *holding* tells of one station which of its newest numbers are here. It rides in what is sent
anyway, or goes in a beacon: soon where something lacks here, else ever more seldom (the Trickle
timer of RFC 6206), and not where others have said as much meanwhile. Who hears that another lacks
what is here repeats it. An SOS is in no holding: each of those is acknowledged by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from math import inf

from fieldagent.agent.channels.air_pace import CROWD
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.bitmap import SEVERAL_MAX
from fieldagent.wire.envelope import Ack, Entry, digest_of_slices

STATIONS_MAX = 1000
CONFIRMS = 16
"""The newest items that a holding confirms, by the digest of them; of those before it only says
that they are here."""
INTERVAL_MIN, INTERVAL_MAX = 60.0, 600.0
"""Seconds from beacon to beacon, after news and in long silence."""
ASK_AFTER = 40.0
"""Seconds, half of them more or less, until we say that something lacks here: whoever lacks the
same and hears it keeps silent."""
PUT_OFF_MAX = 600.0
"""Seconds from beacon to beacon in a crowd, at the most, where what they would say rides in what is
sent anyway."""
SLOWER_MAX = 3.0
"""How many times as long a beacon waits in a crowd, at the most."""
ASKS_MAX = 8
"""Times that we say so of one item in vain: nobody has it any more."""
FRESH = 3600.0
"""Seconds after the last news of a station in which beacons tell of it; later who comes is told."""
HERE_MAX = 2 * SEVERAL_MAX
"""Numbers of a station that are known to be here: those that are told, and as many elsewhere."""
RIDES = 3
"""Holdings that ride in a packet."""


@dataclass(slots=True)
class _OfStation:
    here: dict[int, bytes] = field(default_factory=dict)
    """Numbers with the digests of their items."""
    unsaid: set[int] = field(default_factory=set)
    """Numbers that are here, and nobody is told: another kit speaks under our number, too."""
    lacking: dict[int, int] = field(default_factory=dict)
    """Numbers that somebody has and we lack, and how often we have said so."""
    told: bool = False
    """Somebody has said since the last beacon that they have as much."""
    asked: bool = False
    """Somebody has said that they lack what we do."""
    changed: bool = False
    """It is otherwise than what we said last."""
    asked_at: float = -inf
    fresh_until: float = -inf
    """Until then beacons tell of it."""

    newest: int = 0
    """The last of the numbers that are told: `SEVERAL_MAX` of them."""
    stands_until: float = -inf
    """Until then what comes from below those does not move them back. Anybody may have sent the
    number far ahead that moved them on, or another kit under that station's number."""

    def open(self) -> list[int]:
        """Return the numbers that we still ask for."""
        return [number for number, count in self.lacking.items() if count < ASKS_MAX]

    def asks(self) -> bool:
        return bool(self.open())

    def told_numbers(self) -> range:
        """Return the numbers that a holding tells of. What we ask for moves them on until we have
        asked in vain: that somebody has it is a mere claim."""
        newest = max((self.newest, *self.open()))
        return range(max(0, newest - SEVERAL_MAX) + 1, newest + 1)

    def move(self, number: int, now: float) -> None:
        """Note that this number has come, which moves on the numbers that are told."""
        if number > self.newest or (number not in self._last() and now >= self.stands_until):
            self.newest = number
        if number in self._last():
            self.stands_until = now + FRESH

    def _last(self) -> range:
        return range(self.newest - SEVERAL_MAX + 1, self.newest + 1)

    def forget_old(self) -> None:
        first = self.told_numbers().start
        for number in [each for each in self.lacking if each < first]:
            del self.lacking[number]
        while len(self.lacking) > HERE_MAX:
            del self.lacking[next(iter(self.lacking))]
        last = self._last()
        elsewhere = [each for each in self.here if each not in last]
        for number in elsewhere[: max(0, len(self.here) - HERE_MAX)]:
            del self.here[number]
        self.unsaid = {each for each in self.unsaid if each >= last.start}


class Holdings:
    """`station` is our own. `random` gives a share from 0 to 1. Times are of any one clock."""

    def __init__(self, station: int, random: Callable[[], float]) -> None:
        self._station = station
        self._random = random
        self._stations: dict[int, _OfStation] = {}
        self._interval = INTERVAL_MIN
        self._slower = 1.0
        """How many times as long a beacon waits."""
        self._due = inf
        self._latest = -inf
        """Until then the next beacon is put off where what it would say has left otherwise."""
        self._beacon: list[int] = []
        """Stations of which the beacon is still to tell."""

    def note_crowd(self, crowd: int) -> None:
        """Note that so many are in earshot, and say the same."""
        self._slower = min(SLOWER_MAX, max(1.0, crowd / CROWD))

    @property
    def _in_crowd(self) -> bool:
        return self._slower > 1

    def note(self, station: int, number: int, digest: bytes, now: float) -> None:
        """Note that this item is here: it came, or it is ours and has left."""
        known = self._of(station)
        if known.here.get(number) == digest:
            return
        known.here[number] = digest
        known.lacking.pop(number, None)
        known.unsaid.discard(number)
        known.told, known.changed, known.fresh_until = False, True, now + FRESH
        known.move(number, now)
        known.forget_old()
        self._hasten(now, INTERVAL_MIN)

    def note_unsaid(self, station: int, number: int) -> None:
        """Note that this item is here, and nobody is told: it is not asked for."""
        known = self._of(station)
        known.lacking.pop(number, None)
        if number not in known.here:
            known.unsaid.add(number)

    def load(self, items: Iterable[tuple[int, int, bytes]], now: float) -> None:
        """Take up what was here before a restart: stations, numbers and digests."""
        for station, number, digest in items:
            self.note(station, number, digest, now)

    def hear(self, holding: Entry, now: float) -> list[int]:
        """Note what another has said that it has; return the numbers that lack there and are
        here."""
        assert isinstance(holding.content, Ack)
        first, numbers = holding.sequence, {*numbers_of(holding)}
        station = holding.content.station
        known = self._of(station)
        window = known.told_numbers()
        fresh = {
            each for each in numbers - known.here.keys() - known.unsaid if each >= window.start
        }
        if station == self._station:
            # Of what we never had nobody has anything, but of a journal that was lost.
            fresh.clear()
        if fresh - known.lacking.keys():
            known.lacking |= dict.fromkeys(fresh - known.lacking.keys(), 0)
            known.fresh_until = now + FRESH
            known.forget_old()
            known.asked = False
            # In a crowd something new lacks every few seconds: a beacon that is near will do.
            within = ASK_AFTER * self._slower
            if not self._in_crowd or self._due > now + 1.5 * within:
                self._due = min(self._due, now + within * (0.5 + self._random()))
        elif (asks := known.open()) and first <= min(asks) and not numbers.intersection(asks):
            known.asked = True
        if numbers.issuperset(each for each in known.here if each >= first and each in window):
            known.told = True
        # Whose numbers end far below may have left ours behind: it hears of them, and may ask.
        reach = range(first, first + 2 * SEVERAL_MAX)
        return sorted(each for each in known.here if each in reach and each not in numbers)

    def digest(self, station: int, number: int) -> bytes | None:
        """Return the digest of that item, if it is here and one of the newest."""
        known = self._stations.get(station)
        return None if known is None else known.here.get(number)

    def greet(self, now: float, within: float) -> None:
        """Tell all anew to one who is there, may lack anything, and has heard nothing of what was
        said."""
        for each in self._stations.values():
            each.told = False
            each.fresh_until = max(each.fresh_until, now + INTERVAL_MAX)
        self._interval = INTERVAL_MIN
        if self._stations:
            self._hasten(now, within)

    def due(self) -> float:
        """Return when the next beacon is."""
        return self._due

    def begin(self, now: float) -> None:
        """Begin the beacon, which is due, and set when the next one is."""
        asks = False
        self._beacon, self._latest = [], now + PUT_OFF_MAX
        for number, each in self._stations.items():
            asks |= each.asks()
            if now < each.fresh_until and self._is_news(each):
                self._beacon.append(number)
            each.told = each.asked = False
        self._interval = INTERVAL_MIN if asks else min(INTERVAL_MAX, 2 * self._interval)
        lives = any(now < each.fresh_until for each in self._stations.values())
        waits = min(INTERVAL_MAX, self._interval * self._slower)
        self._due = now + waits * (0.5 + 0.5 * self._random()) if lives else inf

    def to_tell(self, now: float, *, beside: bool) -> list[int]:
        """Return the stations of which a packet tells: of the beacon, and `beside` something else
        of those where news are that nobody has told."""
        known = self._stations
        self._beacon = [n for n in self._beacon if n in known and self._is_news(known[n])]
        stations = self._beacon
        if beside:
            ride = (n for n, each in known.items() if self._rides(each, now) and n not in stations)
            stations = [*stations, *sorted(ride, key=lambda n: not known[n].asks())][:RIDES]
        return [*stations]

    def _rides(self, each: _OfStation, now: float) -> bool:
        """In a crowd not what another has told, and what lacks as often as a beacon would ask."""
        if not self._in_crowd:
            return each.changed
        if each.asks():
            return each.changed or now - each.asked_at >= ASK_AFTER * self._slower
        return each.changed and not each.told

    def _is_news(self, each: _OfStation) -> bool:
        return self._still_asks(each) or not each.told

    @staticmethod
    def _still_asks(each: _OfStation) -> bool:
        """Return whether something of it lacks here, and nobody has said that it lacks the same."""
        return each.asks() and not each.asked

    def said(self, station: int, now: float) -> None:
        """Note that the holding of this station has left."""
        known = self._of(station)
        known.told = known.asked = True
        known.changed = False
        if now - known.asked_at >= ASK_AFTER / 2:
            known.asked_at = now
            for number in known.lacking:
                known.lacking[number] += 1
        self._beacon = [each for each in self._beacon if each != station]
        if self._in_crowd and not any(map(self._still_asks, self._stations.values())):
            later = now + ASK_AFTER * self._slower * (0.5 + self._random())
            self._due = max(self._due, min(self._latest, later))

    def holding(self, station: int) -> Entry | None:
        """Return what is here of it; None where nothing is, and nothing is known to lack."""
        known = self._stations.get(station)
        if known is None:
            return None
        numbers = known.told_numbers()
        lacking = [each for each in known.open() if each in numbers]
        present = sorted(each for each in known.here if each in numbers)
        if not present and not lacking:
            return None
        first = min((*present, *lacking), default=0)
        arrived = frozenset(number - first for number in present)
        digest = digest_of_slices(known.here[number] for number in present[-CONFIRMS:])
        return Entry(first, Ack(station, 0, arrived, digest=digest if present else b""))

    def _of(self, station: int) -> _OfStation:
        known = self._stations.pop(station, None) or _OfStation()
        self._stations[station] = known
        while len(self._stations) > STATIONS_MAX:
            del self._stations[next(iter(self._stations))]
        return known

    def _hasten(self, now: float, within: float) -> None:
        if within >= INTERVAL_MIN:
            if self._interval <= INTERVAL_MIN and self._due < inf:
                return
            self._interval = within
            within *= self._slower
        self._due = min(self._due, now + within * (0.5 + self._random() * (within < INTERVAL_MIN)))


def numbers_of(holding: Entry) -> list[int]:
    """Return those that are said to be there, in order."""
    assert isinstance(holding.content, Ack)
    return [holding.sequence + index for index in sorted(holding.content.arrived)]


def confirmed_by(holding: Entry) -> list[int]:
    """Return those of them that its digest is of."""
    return numbers_of(holding)[-CONFIRMS:]
