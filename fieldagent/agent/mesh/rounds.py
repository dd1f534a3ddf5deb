"""Which items go on the air once more, when, and for whom: decides, and sends nothing.

What is no SOS goes again when a holding tells that somebody lacks it: whoever has it waits for a
random while, the longer the more there are, and leaves it when another is heard to repeat it. An
SOS waits for nobody's word, and what asks for the hub is repeated by who is on its way:

| whose | reason | first, seconds | then | ends |
|---|---|---|---|---|
| our SOS | a station lacks it | 10 | doubling to 10 minutes | all have it |
| any SOS | one may be there that was not heard yet | as above | as above | 3 times; unanswered: 8 |
| another's SOS | a station lacks it | 5 to 15 | doubling to 10 minutes | all have it |
| ours | the hub lacks it, and a way is known | 60 | doubling to an hour | it has |
| another's | it asks us for the hub | 2 to 6 | doubling to 4 minutes | it has; 3 times an asking |
| another's | its sender is to know that the hub has it | 1 to 5 | 30, 120 | 3 times an asking |
| another's | its sender is to know who lacks it beyond | 1 to 5 | doubling | once; an SOS 6 times |

What is repeated keeps its sender's number and bears who repeats it, so that no item crosses more
kits than allowed; an SOS names the stations that lack it, and only those answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from math import inf

from fieldagent.agent.channels.air_pace import CROWD, backoff, drawn
from fieldagent.agent.mesh.neighbours import Neighbours
from fieldagent.agent.outbound.piggyback import Repeat
from fieldagent.agent.outbound.radio_piggyback import RadioPiggyback
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import BEYOND_MAX, Ack, Entry, RelayRequest, Source, digest_of, encode

BYTES_MAX = 1_000_000
"""Of memory for what is at hand, about `ITEM_BYTES` an item beside its own."""
ITEM_BYTES = 1000
NAMED_MAX = 8
"""Stations that are named as lacking an item, about 9 bytes each; where more lack it all answer."""
AGAIN_MAX, HUB_AGAIN_MAX, PROD_MAX = 600.0, 3600.0, 240.0
WAIT, WAIT_LEAST = 0.5, 2.0
"""Seconds for each station in earshot, and at the least: so long at most we wait before we repeat
what somebody lacks, as others have it too."""
ON_CALL_FOR = 30.0
"""Seconds after which those who repeat for a crowd are drawn anew. What is asked for again after
that anybody repeats."""
JUST_NOW = 2.0
"""Seconds after an item was on the air in which nobody can have said yet that it came."""
PRODS_MAX = 3
STOP_TELLS_MAX = 6
"""How often the sender of an SOS is told that it goes no further, as nobody confirms that."""
STOPS_AFTER = 10.0
"""Seconds in which another may bring what we may not to who lacks it."""
TELLS_MAX, TELL_AGAIN = 3, 30.0
"""How often the sender is told that the hub has its item, as nobody confirms that, and seconds from
the first time to the next; from there to the last it is four times as long."""
SOS_BLIND, SOS_ALONE = 3, 8
"""How often an SOS goes again though nobody is known to lack it: the hello of one that lacks it may
have been lost. More often where nobody has said yet that it came."""
ENOUGH = 2
"""Others heard repeating it, for which we leave out a turn of ours."""
PARTS_MAX, PARTS_BYTES = 8, 1600
"""Fragments up to which an item that is no SOS goes round; of smaller packets as many as make these
bytes."""
APART = 5.0
"""Seconds between two packets of items that are no SOS: who comes back lacks many."""
KEPT = 3600.0
"""Seconds for which another's item is repeated since it was heard from its sender."""
AT_HAND = 86_400.0
"""The same of ours."""

Key = tuple[int, int, bytes]
"""The station whose item it is, the number it gave it, and its digest."""


def goes_round(parts: int, packet_bytes: int) -> bool:
    """Return whether what is no SOS goes round, in so many packets."""
    return 0 < parts <= max(PARTS_MAX, PARTS_BYTES // packet_bytes)


@dataclass(slots=True)
class OnItsWay:
    """An item that may go round."""

    station: int
    entry: Entry
    parts: Sequence[Entry]
    """What goes: the entry itself, or its fragments."""
    until: float
    asks: bool = False
    """It is to reach the hub."""
    hops: int = 0
    """Transmissions that brought it here; 0 is ours."""
    has: set[int] = field(default_factory=set)
    """Stations that said so."""
    answers: int = 0
    """How many said so after they were reached by us."""
    echoes: set[int] = field(default_factory=set)
    """Stations that repeat it, since our last turn."""
    brought_by: int = 0
    """The station that says that the hub has it."""
    due: float = inf
    tries: int = 0
    aired: float = -inf
    """When it was on the air last."""
    wanted: float = -inf
    """When somebody was heard to lack it first since."""
    asked: set[int] = field(default_factory=set)
    """Neighbours that were asked to bring it to the hub, and did not."""
    hub_due: float = inf
    hub_tries: int = 0
    tell_due: float = inf
    """When its sender is told that the hub has it."""
    tells: int = 0
    """How often it was, since it asked last."""
    stopped: dict[int, set[int]] = field(default_factory=dict)
    """By the station that has it and may not pass it on: those that lack it there."""
    stop_due: float = inf
    """When its sender is told that."""
    stop_tells: int = 0
    collapse: int | None = None
    """A newer one of ours with the same takes its place."""


@dataclass(slots=True)
class OnCall:
    """Whether this kit repeats what is asked for."""

    _drawn: bool = True
    _until: float = -inf

    def draw(self, crowd: int, now: float, share: float) -> bool:
        """Return True if this kit repeats: up to `CROWD` in earshot all do; of more a few, drawn by
        a share from 0 to 1."""
        if crowd <= CROWD:
            return True
        if now >= self._until:
            self._drawn, self._until = drawn(share, crowd) < 1, now + ON_CALL_FOR
        return self._drawn


class Rounds:
    """`words` are what we say beside Packages, in packets of `packet_bytes` at most; `hops` is how
    many transmissions bring an item anywhere at most. `random` gives a share from 0 to 1. Times are
    of any one clock."""

    def __init__(
        self,
        station: int,
        neighbours: Neighbours,
        words: RadioPiggyback,
        *,
        hops: int,
        packet_bytes: int,
        random: Callable[[], float],
    ) -> None:
        self.station = station
        self.neighbours = neighbours
        self._words = words
        self._hops = hops
        self._packet_bytes = packet_bytes
        self._random = random
        self.items: dict[Key, OnItsWay] = {}
        """The oldest is the first."""
        self._bytes = 0
        self._on_call = OnCall()
        self._ordinary_at = -inf
        """When what is no SOS may go again."""

    def add(self, item: OnItsWay, now: float) -> None:
        """Add an item that has come, from its sender or by another that repeats it; or that is ours
        and has left for the first time."""
        ours = item.station == self.station
        item.aired = now
        known = self.items.setdefault(_key(item), item)
        if known is not item:
            self._heard_again(known, item, now)
            return
        if item.entry.sos:
            item.due = now + (10 if ours else 5 + 10 * self._random())
        item.hub_due = now + (60 if ours else 2 + 4 * self._random())
        self._bytes += ITEM_BYTES + _bytes_of(item)
        while self._bytes > BYTES_MAX:
            self.drop(min(self.items.values(), key=lambda each: (each.entry.sos, each.asks)))

    def _heard_again(self, known: OnItsWay, again: OnItsWay, now: float) -> None:
        known.has |= again.has
        known.aired = now
        if again.hops > 1:
            known.echoes |= again.has
        if not known.entry.sos:
            # Who lacks it has it by now, or says so again.
            known.due = inf
            self._words.leave(known.station, known.entry.sequence)
            # Who lacked it where it goes no further may have it by this.
            known.stopped.pop(self.station, None)
            if again.hops > 1:
                self._let_gather(now)
        known.hops = min(known.hops, again.hops)
        if not again.asks:
            return
        # Who asks us does not know that the hub has it, or the hub lacks it.
        if not known.asks:
            known.asks, known.hub_due = True, now + 2 + 4 * self._random()
        known.until = max(known.until, again.until)
        if known.brought_by and known.tries + known.hub_tries:
            known.tells, known.tell_due = 0, min(known.tell_due, now + 1 + 4 * self._random())
        elif not known.brought_by and known.hub_tries >= PRODS_MAX and again.hops <= known.hops:
            # Not by who has it of us, or as we have it: they would ask each other for ever.
            known.hub_tries, known.hub_due = 0, now + 2 + 4 * self._random()

    def _let_gather(self, now: float) -> None:
        """Another of a crowd has repeated what lacks: what lacks next is soon a packet full."""
        if self._ordinary_at <= now and len(self.neighbours.in_earshot()) > CROWD:
            self._ordinary_at = now + APART * (1 + self._random())

    def want(self, station: int, sequence: int, by: int, now: float) -> None:
        """Note that the station `by` lacks that item of a station, which is no SOS."""
        digest = self._words.holdings.digest(station, sequence)
        item = None if digest is None else self.items.get((station, sequence, digest))
        if item is None or item.entry.sos or now - item.aired < JUST_NOW:
            return
        if self._may_go(item):
            crowd = len(self.neighbours.in_earshot())
            asked_again = _note_wanted(item, now)
            if not (self._on_call.draw(crowd, now, self._random()) or asked_again):
                return
            wait = backoff(self._random(), max(WAIT_LEAST, WAIT * crowd), crowd)
            item.due = min(item.due, now + wait)
        else:
            self._note_stop(item, self.station, [by], now + STOPS_AFTER)

    def ours(self) -> list[OnItsWay]:
        """Return the items of this station that are on their way."""
        return [item for item in self.items.values() if item.station == self.station]

    def drop(self, item: OnItsWay) -> None:
        """Let an item go, and the memory that it takes."""
        if self.items.pop(_key(item), None) is not None:
            self._bytes -= ITEM_BYTES + _bytes_of(item)

    def supersede(self, collapse: int, *, sos: bool) -> None:
        """Drop our items of this collapseKey: a newer one of ours has it."""
        for item in self.ours():
            if item.collapse == collapse and item.entry.sos == sos:
                self.drop(item)

    def note_ack(self, sequence: int, ack: Ack, by: int, now: float) -> None:
        """Note that the station `by` has it; where it says so, the hub too."""
        item = self.items.get((ack.station, sequence, ack.digest))
        if item is None or not ack.whole:
            return
        item.answers += by not in item.has
        item.has.add(by)
        if ack.beyond:
            self._note_stop(item, by, ack.beyond, now)
        if ack.by_hub and not item.brought_by:
            item.brought_by = by
            if item.station != self.station and item.tries + item.hub_tries:
                # Who asked may not hear who answered.
                item.tell_due = now + 1 + 4 * self._random()

    def _note_stop(self, item: OnItsWay, at: int, beyond: Iterable[int], now: float) -> None:
        """Those lack it, and `at` may not pass it on to them: what is news goes to its sender."""
        known = item.stopped.setdefault(at, set())
        if item.station != self.station and not known.issuperset(beyond):
            item.stop_tells, item.stop_due = 0, min(item.stop_due, now + 1 + 4 * self._random())
        known.update(beyond)

    def is_asked(self, station: int, number: int, digest: bytes) -> bool:
        """Return whether its sender wants to know how far that item comes; also where nobody here
        knows it any more."""
        item = self.items.get((station, number, digest))
        return item is None or item.entry.asks or item.entry.sos

    def note_way(self, now: float) -> None:
        """Let what waited for a way to the hub go: one is known."""
        for item in self.items.values():
            if item.asks and not item.brought_by:
                item.hub_due = min(item.hub_due, now + 1 + 9 * self._random())

    def welcome(self, station: int, now: float) -> None:
        """Send an SOS again to a station that is in earshot, and may have been away, also where it
        once had it, as its journal may be lost. What else it lacks it says once it has heard what
        we have."""
        others = len(self.neighbours.in_earshot()) - 1
        for item in self.items.values():
            if not item.entry.sos:
                continue
            if self._may_go(item):
                item.has.discard(station)
            if station in self.missing(item):
                # Others who have it may be as quick: who hears the answer leaves it out.
                item.due = min(item.due, now + others * self._random())

    def next_due(self) -> float:
        """Return when something is to be said next, by trio's clock; `inf` for never."""
        moments = (
            min(each.due, each.hub_due, each.tell_due, each.stop_due)
            for each in self.items.values()
        )
        return min(moments, default=inf)

    def missing(self, item: OnItsWay) -> list[int]:
        """Return who was heard lately and has not confirmed it."""
        knows = item.has | {item.station, self.station}
        return [number for number in self.neighbours.in_earshot() if number not in knows]

    def take(self, now: float) -> list[Repeat]:
        """Return what is to be transmitted now, the newest of what is no SOS first."""
        for item in [each for each in self.items.values() if each.until < now]:
            self.drop(item)
        repeats: list[Repeat] = []
        ordinary = [each for each in self.items.values() if not each.entry.sos]
        # What waits for its moment goes along with what is due.
        begins = now >= self._ordinary_at and any(each.due <= now for each in ordinary)
        capacity = self._packet_bytes if begins else 0
        for item in reversed(self.items.values()):
            goes = item.due <= now
            if not item.entry.sos:
                goes = capacity > 0 and item.due < inf
                goes = goes and (capacity == self._packet_bytes or _bytes_of(item) <= capacity)
                if not goes:
                    item.due = max(item.due, self._ordinary_at)
                item.hub_due = max(item.hub_due, self._ordinary_at)
            again = self._due_of(item, now, goes=goes)
            if again and not item.entry.sos:
                capacity -= _bytes_of(item)
                self._ordinary_at = now + APART
            repeats += again
        return repeats

    def _due_of(self, item: OnItsWay, now: float, *, goes: bool) -> list[Repeat]:
        again: list[Repeat] = []
        if item.tell_due <= now:
            item.tells += 1
            pause = self._spread(TELL_AGAIN * 4 ** (item.tells - 1))
            item.tell_due = now + pause if item.tells < TELLS_MAX else inf
            again += self._tell(item)
        if item.stop_due <= now:
            item.stop_tells += 1
            pause = self._spread(TELL_AGAIN * 2 ** (item.stop_tells - 1))
            more = item.entry.sos and item.stop_tells < STOP_TELLS_MAX
            item.stop_due = now + pause if more else inf
            again += self._tell_stop(item)
        lacking: list[int] = []
        if goes and item.entry.sos:
            goes, lacking = self._goes_again(item, now)
        elif goes:
            item.due, item.tries = inf, item.tries + 1
        asks = item.hub_due <= now and self._asks_again(item, now)
        if goes or asks:
            item.aired = now
            again += self._packets(item, lacking, asks=asks)
        return again

    def _goes_again(self, item: OnItsWay, now: float) -> tuple[bool, list[int]]:
        """Return whether an SOS goes again, and which stations are known to lack it."""
        item.due = inf
        lacking = self.missing(item)
        blind = not lacking and self._goes_blindly(item)
        ours = item.station == self.station
        if not self._may_go(item):
            self._note_stop(item, self.station, lacking, now)
            return False, []
        if not (blind or lacking):
            return False, []
        item.tries += 1
        # Blindly it goes a few times soon: nobody will say that it is lacked.
        doublings = max(0, item.tries - SOS_BLIND) if blind else item.tries
        pause = (10 if ours else 15) * 2 ** min(doublings, 10)
        item.due = now + self._spread(min(AGAIN_MAX, pause))
        enough = blind and len(item.echoes) >= ENOUGH
        item.echoes = set()
        return not enough, lacking

    def _may_go(self, item: OnItsWay) -> bool:
        """Return whether one more transmission of it is allowed."""
        return item.station == self.station or item.hops < self._hops

    def _goes_blindly(self, item: OnItsWay) -> bool:
        """Return whether it goes again although nobody is known to lack it."""
        return item.entry.sos and item.tries < (SOS_BLIND if item.answers else SOS_ALONE)

    def _asks_again(self, item: OnItsWay, now: float) -> bool:
        item.hub_due = inf
        ours = item.station == self.station
        if not item.asks or item.brought_by or self._words.ways.brings():
            return False
        if not ours and (item.hops >= self._hops or item.hub_tries >= PRODS_MAX):
            return False
        if self._words.request(sos=item.entry.sos) is None:
            return False
        item.hub_tries += 1
        longest, first = (HUB_AGAIN_MAX, 60) if ours else (PROD_MAX, 30)
        item.hub_due = now + self._spread(min(longest, first * 2 ** min(item.hub_tries - 1, 10)))
        return True

    def _spread(self, pause: float) -> float:
        """Those who wait for the same are not to begin at one moment."""
        return pause * (0.75 + 0.5 * self._random())

    def _packets(self, item: OnItsWay, lacking: Sequence[int], *, asks: bool) -> list[Repeat]:
        sos, number = item.entry.sos, item.entry.sequence
        beside: list[Entry] = []
        if asks or (sos and item.asks and not item.brought_by):
            request = self._words.request(sos=sos, but={item.station, *item.asked})
            if request is not None:
                assert isinstance(request.content, RelayRequest)
                beside.append(request)
                item.asked.add(request.content.station)
        # Of ours that is no SOS: who has it is silent.
        if item.station != self.station or not sos:
            beside.append(Entry(0, Source(self.station, item.hops)))
        named: list[Entry] = []
        if sos and len(lacking) <= NAMED_MAX:
            # Ourselves, where nobody is to answer but who reaches the hub.
            named = [Entry(number, Source(each, 0)) for each in lacking or [self.station]]
        origin, hops = item.station, item.hops
        if not sos and not asks and item.parts[0] == item.entry:
            return [Repeat(origin, [item.entry], hops=hops, joins=True)]
        return [Repeat(origin, [part, *beside], named, sos, hops) for part in item.parts]

    def _tell(self, item: OnItsWay) -> list[Repeat]:
        if item.hops >= self._hops:
            return []
        ack = Ack(item.station, by_hub=True, digest=digest_of(item.entry))
        mark = Entry(0, Source(self.station, item.hops))
        return [Repeat(item.brought_by, [Entry(item.entry.sequence, ack), mark])]

    def _tell_stop(self, item: OnItsWay) -> list[Repeat]:
        """Ours, and what we heard of others: that one in their name."""
        repeats = []
        for at, beyond in item.stopped.items():
            ours = at == self.station
            lack = sorted(beyond - item.has)[:BEYOND_MAX]
            if lack and ours is not self._may_go(item):
                ack = Ack(item.station, digest=digest_of(item.entry), beyond=tuple(lack))
                mark = [] if ours else [Entry(0, Source(self.station, item.hops))]
                repeats.append(Repeat(at, [Entry(item.entry.sequence, ack), *mark]))
        return repeats


def _note_wanted(item: OnItsWay, now: float) -> bool:
    """Somebody lacks it; return whether that was so before, and nobody was heard to repeat it."""
    if item.wanted <= item.aired:
        item.wanted = now
    return now - item.wanted >= ON_CALL_FOR


def _bytes_of(item: OnItsWay) -> int:
    return sum(len(encode([part])) for part in item.parts)


def _key(item: OnItsWay) -> Key:
    return item.station, item.entry.sequence, digest_of(item.entry)
