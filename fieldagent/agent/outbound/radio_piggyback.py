"""Words to other kits that ride along on the air: what of theirs has come, who we are, and what a
neighbour is to bring to the hub."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable
from math import inf
from random import Random

from fieldagent import __version__
from fieldagent.agent.channels.air_pace import alone_after
from fieldagent.agent.journal import inbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.draft import Draft
from fieldagent.agent.outbound.holdings import Holdings, confirmed_by, numbers_of
from fieldagent.agent.outbound.piggyback import Piggybacked, Repeat
from fieldagent.agent.outbound.readings import AirWord, Readings
from fieldagent.agent.outbound.ways import Ways
from fieldagent.package.package import Item, Parcel
from fieldagent.package.payload import Identity
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import (
    Ack,
    Entry,
    Fragment,
    Introduction,
    Program,
    RelayRequest,
    Report,
    SentBy,
    digest_of,
)

ACKS_MAX = 256
"""Acknowledgements that wait; for one that is dropped the item comes again."""
INTRODUCE_EVERY = 3600.0
"""Seconds."""
PROGRAM = Entry(0, Program(__version__))
"""Goes with our name, where it fits."""
HELLO_APART = 10.0
"""Seconds between two hellos: kits that are switched on together need not answer each other's."""


def goes_down(entry: Entry) -> bool:
    """Return whether it comes from the hub, which needs it from nobody."""
    return isinstance(entry.content, Parcel) and entry.content.station > 0


@dataclass(slots=True)
class _DueAck:
    ack: Ack
    together: bool
    """The holding says it too, and whoever hears another say so need not."""
    twice: bool
    """It goes in two packets, one after the other."""
    alone: bool
    """It is said for itself too, where others are said with it."""
    due: float
    """It goes at this time."""


class RadioPiggyback:
    """Acknowledgements of what was heard, what is here of each station and who has read it, our
    name, our way to the hub, and the request to relay what goes out.

    An acknowledgement that is lost is given again, as the item comes again. `asks_for_relay` tells
    whether we reach the hub over neighbours alone, and `ways` over which.
    """

    def __init__(
        self,
        station: int,
        identity: Identity,
        journal: Journal,
        *,
        asks_for_relay: Callable[[], bool],
        ways: Ways,
        readings: Readings,
        clock: Callable[[], float],
    ) -> None:
        self._random = Random().random
        self.holdings = Holdings(station, self._random)
        self.readings = readings
        self._journal = journal
        self._introduction = Entry(station, Introduction(identity))
        self._asks_for_relay = asks_for_relay
        self.ways = ways
        self.clock = clock
        self._introduced = -INTRODUCE_EVERY
        self._said_hello = -inf
        self._presents_itself = False
        self._acks: dict[tuple[int, int], _DueAck] = {}
        """By the station whose item it is, and the number it gave the item."""
        self._repeats: list[Repeat] = []
        self.said: set[int] = set()
        """Numbers of our items that went on the air."""
        self.look()

    def repeat(self, repeats: Iterable[Repeat]) -> None:
        """Send these once more, an SOS first; what waits from before is as good."""
        kept = {(each.origin, each.entries[0]) for each in self._repeats}
        self._repeats += [each for each in repeats if (each.origin, each.entries[0]) not in kept]
        self._repeats.sort(key=lambda each: not each.sos)

    def leave(self, origin: int, sequence: int) -> None:
        """Leave what another repeats, and is no SOS: we need not."""
        self._repeats = [
            each
            for each in self._repeats
            if not each.joins or (each.origin, each.entries[0].sequence) != (origin, sequence)
        ]

    def next_repeat(self, *, busy: bool | None) -> Repeat | None:
        if not self._repeats or busy is None or (busy and not self._repeats[0].sos):
            return None
        return self._repeats.pop(0)

    def joining(self) -> Repeat | None:
        return next((each for each in self._repeats if each.joins), None)

    def joined(self, repeat: Repeat) -> None:
        self._repeats.remove(repeat)

    def asks_for_relay(self) -> bool:
        """Return whether ours are to be brought to the hub by neighbours."""
        return self._asks_for_relay()

    def request(self, *, sos: bool = False, but: Collection[int] = ()) -> Entry | None:
        """Return the request that a neighbour brings it to the hub; None where nobody is to. An SOS
        asks whoever hears it where no way is known."""
        hop = self.ways.next_hop(but)
        if hop is None and not sos:
            return None
        return Entry(0, RelayRequest(hop or 0))

    def introduce(self, *, at_once: bool = False) -> None:
        """Say our name to somebody who may not know it: it goes along with what goes next, or by
        itself where it was not said just now."""
        self._introduced = -INTRODUCE_EVERY
        self._presents_itself |= at_once and self.clock() - self._said_hello >= HELLO_APART

    def acknowledge(
        self,
        sequence: int,
        ack: Ack,
        *,
        together: bool = False,
        twice: bool = False,
        alone: bool = False,
        crowd: int = 1,
    ) -> None:
        """Acknowledge an item, `together` with others of that station, by any of the crowd in
        earshot. `twice`: it was said before, and lost. `alone`: whoever has forgotten one of
        several cannot tell that the others are its own."""
        key = ack.station, sequence
        if (before := self._acks.get(key)) is not None:
            twice, alone = twice or before.twice, alone or before.alone
        wait = 0.0
        if together and crowd > 1:
            wait = alone_after(self._random(), crowd)
        self._acks[key] = _DueAck(ack, together, twice, alone, self.clock() + wait)
        while len(self._acks) > ACKS_MAX:
            del self._acks[next(iter(self._acks))]

    def next_due(self) -> float:
        """Return the seconds until the next beacon, or an acknowledgement that waits."""
        now = self.clock()
        waits = (due.due for due in self._acks.values() if due.due > now)
        soonest = min(self.holdings.due(), self.readings.next_due(now))
        return min(soonest, min(waits, default=inf)) - now

    def begin_beacon(self) -> None:
        """Begin a beacon of what is held, if one is due."""
        if self.holdings.due() <= self.clock():
            self.holdings.begin(self.clock())

    def note_here(self, station: int, item: Entry, *, said: bool = True) -> None:
        """Note that an item is on disk, which is no SOS. Without `said` nobody is told."""
        if not said:
            self.holdings.note_unsaid(station, item.sequence)
            return
        self.holdings.note(station, item.sequence, digest_of(item), self.clock())

    def greet(self, *, crowd: int) -> None:
        """Tell what we have to somebody who is there and may have been away: whoever is first
        does."""
        self.holdings.greet(self.clock(), 2.0 + crowd)
        self.ways.greet()

    def hear_holding(self, holding: Entry) -> list[int]:
        """Note what another tells that it has of a station; return the numbers that lack there and
        are here."""
        assert isinstance(holding.content, Ack)
        for number in numbers_of(holding):
            due = self._acks.get((holding.content.station, number))
            if due is not None and due.together and not due.alone:
                del self._acks[holding.content.station, number]
        return self.holdings.hear(holding, self.clock())

    def overhear(self, sequence: int, ack: Ack) -> None:
        """Drop our own word where another has said it: as much of an item, or more, is at a station
        already."""
        key = ack.station, sequence
        due = self._acks.get(key)
        if due is None:
            return
        ours = due.ack
        if ours.whole and ack.whole and due.together:
            del self._acks[key]
        elif not ours.whole and ours.count == ack.count:
            other = ours.arrived == ack.arrived and ours.digest != ack.digest
            if ours.arrived <= ack.arrived and not other:
                del self._acks[key]

    def look(self) -> None:
        """Look which stations are to be told how far their items have come here."""
        self.readings.owe(inbound.station_owed(self._journal), self.clock())

    def report(self, origin: int, report: Entry) -> None:
        said = report.content
        assert isinstance(said, Report)
        ack = Ack(-origin, said.count, said.arrived, digest=said.digest)
        self.acknowledge(report.sequence, ack)

    def ask_names(self) -> None:
        pass

    def is_worth_sending(self) -> bool:
        acks = any(due.due <= self.clock() for due in self._acks.values())
        says = acks or self._repeats or self._presents_itself
        says = says or self.readings.is_due(self.clock())
        tells = self.holdings.to_tell(self.clock(), beside=False) or self.ways.to_say(beside=False)
        return bool(says or tells)

    def fill(self, draft: Draft, capacity: int) -> Piggybacked:
        words = Piggybacked()
        if not draft.entries and not self.is_worth_sending():
            return words
        items = [each for each in draft.entries if isinstance(each.content, Item | Fragment)]
        self.said |= {each.sequence for each in items}
        urgent = any(each.sos for each in items)
        goes_up = any(not goes_down(each) for each in items)
        request = self.request(sos=urgent) if goes_up and self.asks_for_relay() else None
        if request is not None:
            draft.add(request, capacity)
        if abs(self.clock() - self._introduced) >= INTRODUCE_EVERY:
            beside = bool(draft.entries)
            words.introduced = draft.add(self._introduction, capacity)
            if words.introduced:
                draft.add(PROGRAM, capacity)
            # Where it never fits beside a Package it has a packet of its own.
            self._presents_itself = beside and not words.introduced
            if words.introduced:
                self._said_hello = self.clock()
        way = self.ways.to_say(beside=bool(draft.entries))
        if way is not None and draft.add(Entry(0, way), capacity):
            self.ways.said(way)
        self._fill_acks(draft, capacity)
        beside = not urgent and bool(items or words.introduced)
        for station in self.holdings.to_tell(self.clock(), beside=beside):
            self._fill_holding(station, draft, capacity)
        if not urgent:
            _fill_readings(self.readings, self._journal, draft, capacity, self.clock())
        return words

    def _fill_acks(self, draft: Draft, capacity: int) -> None:
        for key, due in list(self._acks.items()):
            if key not in self._acks:
                continue
            if due.together and not self._fill_holding(key[0], draft, capacity):
                continue
            if key in self._acks and draft.add(Entry(key[1], due.ack), capacity):
                if due.twice:
                    due.twice = False
                else:
                    del self._acks[key]

    def _fill_holding(self, station: int, draft: Draft, capacity: int) -> bool:
        """Return whether it fits, or stands there already."""
        holding = self.holdings.holding(station)
        if holding is None or holding in draft.entries:
            return True
        if not draft.add(holding, capacity):
            return False
        self.holdings.said(station, self.clock())
        for number in confirmed_by(holding):
            due = self._acks.get((station, number))
            if due is not None and due.together and not due.alone:
                del self._acks[station, number]
        return True

    def record(self, db: sqlite3.Connection, words: Piggybacked) -> None:
        pass

    def settled(self, words: Piggybacked, *, sent: bool, beside_packages: bool) -> None:
        if words.introduced and sent:
            self._introduced = self.clock()


def _fill_readings(
    readings: Readings, journal: Journal, draft: Draft, capacity: int, now: float
) -> None:
    """Last, as all that stands behind a SentBy is another's."""
    for word in readings.to_say(now, beside=bool(draft.entries)):
        bare = [word.entry]
        if word.hops:
            bare.insert(0, Entry(0, SentBy(word.origin, word.hops), word.entry.time))
        named = [*bare, *_name_of(word, journal)]
        # What fits no packet is not tried for ever.
        if draft.add_all(named, capacity) or draft.add_all(bare, capacity) or not draft.entries:
            readings.said(word, now)


def _name_of(word: AirWord, journal: Journal) -> list[Entry]:
    """Whose word it is, where that is another's: who does not hear it knows its number alone."""
    if not word.hops or word.is_answer:
        return []
    name = inbound.station_names(journal).get(word.origin)
    who = Identity(str(word.origin), name or "", "Device")
    return [Entry(word.origin, Introduction(who))] if name else []
