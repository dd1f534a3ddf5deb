"""Which items go on the air once more, when, and for whom: decides, and sends nothing.

An item goes round until every station heard lately has confirmed it; one whose sender asks for the
hub until somebody says that the hub has it. Its sender repeats it, and so does whoever has it, an
SOS and what asks for the hub sooner:

| whose | reason | first, seconds | then | ends |
|---|---|---|---|---|
| our SOS | a station lacks it | 10 | doubling to 10 minutes | all have it |
| ours | a station lacks it | 110 | 80 | all have it; 6 times |
| ours | the hub lacks it | 60 | doubling to an hour | it has; out of its reach: twice |
| another's SOS | a station lacks it | 5 to 15 | doubling to 10 minutes | all have it |
| another's | a station lacks it | 150 to 250 | 150 to 250 | all have it; 3 times |
| another's | it asks for the hub | 15 to 30 | doubling to 4 minutes | it has; 3 times an asking |

What is repeated keeps its sender's number and bears who repeats it, so that no item crosses more
kits than allowed; it names the stations that lack it, and only those answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from math import inf

from fieldagent.agent.mesh.neighbours import REACHED_FOR, Neighbours
from fieldagent.agent.outbound.piggyback import Repeat
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import Ack, Entry, RelayRequest, Source, digest_of

ITEMS_MAX = 256
NAMED_MAX = 8
"""Stations that are named as lacking an item, about 9 bytes each; where more lack it all answer."""
AGAIN_MAX, HUB_AGAIN_MAX, PROD_MAX = 600.0, 3600.0, 240.0
FIRST, NEXT = 110.0, 80.0
"""Seconds after which it is worth to ask who has an item that is no SOS: they say so with what they
send anyway, or after `PATIENCE`."""
OTHERS, OTHERS_MAX = 200.0, 3
"""Seconds after which we repeat another's that is no SOS, and how often: its sender may be out of
reach of who lacks it."""
ROUNDS_MAX = 6
"""Of an item that is no SOS."""
FOR_RETURNED, FOR_PRESENT = 4, 2
"""How often it goes again for a station that was not in earshot for long, and for one that says
that it is there: it may not hear us."""
BLIND_MAX = 2
"""Times that the hub is asked for while nobody in earshot is known to reach it."""
PRODS_MAX = 3
PARTS_MAX, BYTES_MAX = 8, 1600
"""Fragments up to which an item that is no SOS goes round; of smaller packets as many as make these
bytes."""
APART = 5.0
"""Seconds between two items that are no SOS: who comes back lacks many."""
KEPT = 3600.0
"""Seconds for which another's item is repeated since it was heard from its sender."""
AT_HAND = 86_400.0
"""The same of ours."""

Key = tuple[int, int, bytes]
"""The station whose item it is, the number it gave it, and its digest."""


def goes_round(parts: int, packet_bytes: int) -> bool:
    """Whether what is no SOS does, in so many packets."""
    return 0 < parts <= max(PARTS_MAX, BYTES_MAX // packet_bytes)


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
    brought_by: int = 0
    """The station that says that the hub has it."""
    due: float = inf
    tries: int = 0
    hub_due: float = inf
    hub_tries: int = 0
    tell_due: float = inf
    """When its sender is told that the hub has it."""
    collapse: int | None = None
    """A newer one of ours with the same takes its place."""


class Rounds:
    """`station` is our number; `hops` is how many transmissions bring an item anywhere at most.
    `random` gives a share from 0 to 1, `relays` tells whether we bring to the hub what is asked.
    Times are of any one clock."""

    def __init__(
        self,
        station: int,
        neighbours: Neighbours,
        *,
        hops: int,
        random: Callable[[], float],
        relays: Callable[[], bool],
    ) -> None:
        self.station = station
        self.neighbours = neighbours
        self._hops = hops
        self._random = random
        self._relays = relays
        self.items: dict[Key, OnItsWay] = {}
        self._hub_said = -inf
        """When somebody last said that the hub has something."""
        self._ordinary_at = -inf
        """When what is no SOS may go again."""

    def add(self, item: OnItsWay, now: float) -> None:
        """It has come, from its sender or by another that repeats it; or it is ours and has left
        for the first time."""
        known = self.items.setdefault(_key(item), item)
        if known is not item:
            self._heard_again(known, item, now)
        elif item.station == self.station:
            item.due, item.hub_due = now + (10 if item.entry.sos else FIRST), now + 60
        else:
            item.due = now + (5 + 10 * self._random() if item.entry.sos else self._turn())
            item.hub_due = now + 15 + 15 * self._random()
        while len(self.items) > ITEMS_MAX:
            of_no_sos = (key for key, each in self.items.items() if not each.entry.sos)
            del self.items[next(of_no_sos, next(iter(self.items)))]

    def _turn(self) -> float:
        """Seconds after which we repeat what is another's and no SOS, unless it is heard again."""
        return OTHERS * (0.75 + 0.5 * self._random())

    def _heard_again(self, known: OnItsWay, again: OnItsWay, now: float) -> None:
        known.has |= again.has
        if known.station != self.station and not known.entry.sos and known.due < inf:
            known.due = max(known.due, now + self._turn())
        known.hops = min(known.hops, again.hops)
        known.asks |= again.asks
        if again.hops != 1 or not again.asks:
            return
        # Its sender does not know that the hub has it, or the hub lacks it.
        known.until = max(known.until, again.until)
        if known.brought_by and known.tries + known.hub_tries:
            known.tell_due = min(known.tell_due, now + 1 + 4 * self._random())
        elif not known.brought_by and known.hub_tries >= PRODS_MAX:
            known.hub_tries, known.hub_due = 0, now + 5 + 10 * self._random()

    def ours(self) -> list[OnItsWay]:
        return [item for item in self.items.values() if item.station == self.station]

    def drop(self, item: OnItsWay) -> None:
        self.items.pop(_key(item), None)

    def supersede(self, collapse: int, *, sos: bool) -> None:
        """A newer one of ours has this collapseKey."""
        for item in self.ours():
            if item.collapse == collapse and item.entry.sos == sos:
                self.drop(item)

    def note_ack(self, sequence: int, ack: Ack, by: int, now: float) -> None:
        """The station `by` has it; where it says so, the hub too."""
        if ack.by_hub:
            self.note_hub(now, said=True)
        item = self._known(sequence, ack)
        if item is None or not ack.whole:
            return
        item.has.add(by)
        if ack.by_hub and not item.brought_by:
            item.brought_by = by
            if item.station != self.station and item.tries + item.hub_tries:
                # Who asked may not hear who answered.
                item.tell_due = now + 1 + 4 * self._random()

    def _known(self, sequence: int, ack: Ack) -> OnItsWay | None:
        if ack.digest:
            return self.items.get((ack.station, sequence, ack.digest))
        # Of an older peer. Whether it is believed of ours was looked at before.
        keys = (key for key in self.items if key[:2] == (ack.station, sequence))
        return next((self.items[key] for key in keys), None)

    def note_hub(self, now: float, *, said: bool = False) -> None:
        """Somebody reaches it: what was given up is asked for again. `said`: it has something."""
        if said:
            self._hub_said = now
        for item in self.ours():
            if item.asks and not item.brought_by and item.hub_due == inf:
                item.hub_due = now + 5 + 55 * self._random()

    def welcome(self, station: int, now: float, *, more: int) -> None:
        """It is in earshot, and may have been away: what it lacks goes again, and that of ours so
        many times if need be."""
        for item in self.items.values():
            if station in self.missing(item):
                most = ROUNDS_MAX - more if item.station == self.station else OTHERS_MAX - 1
                item.tries = min(item.tries, most)
                item.due = min(item.due, now + 2 + 18 * self._random())

    def next_due(self) -> float:
        moments = (min(each.due, each.hub_due, each.tell_due) for each in self.items.values())
        return min(moments, default=inf)

    def missing(self, item: OnItsWay) -> list[int]:
        """Who was heard lately and has not confirmed it."""
        knows = item.has | {item.station, self.station}
        return [number for number in self.neighbours.in_earshot() if number not in knows]

    def take(self, now: float) -> list[Repeat]:
        """What is to be transmitted now."""
        for key in [key for key, each in self.items.items() if each.until < now]:
            del self.items[key]
        found: list[Repeat] = []
        for item in self.items.values():
            if not item.entry.sos and now < self._ordinary_at:
                item.due = max(item.due, self._ordinary_at)
                item.hub_due = max(item.hub_due, self._ordinary_at)
            again = self._due_of(item, now)
            if again and not item.entry.sos:
                self._ordinary_at = now + APART
            found += again
        return found

    def _due_of(self, item: OnItsWay, now: float) -> list[Repeat]:
        ours = item.station == self.station
        again: list[Repeat] = []
        if item.tell_due <= now:
            item.tell_due = inf
            again += self._tell(item)
        lacking = self.missing(item) if item.due <= now else []
        if item.due <= now:
            item.due = inf
            may = item.entry.sos or item.tries < (ROUNDS_MAX if ours else OTHERS_MAX)
            if lacking and may and (ours or item.hops < self._hops):
                item.tries += 1
                first = 10 if ours else 15
                pause = first * 2 ** min(item.tries, 10) if item.entry.sos else NEXT
                pause = pause if ours or item.entry.sos else OTHERS
                item.due = now + self._spread(min(AGAIN_MAX, pause))
            else:
                lacking = []
        asks = item.hub_due <= now and self._asks_again(item, now, ours=ours)
        if lacking or asks:
            again += self._packets(item, lacking)
        return again

    def _asks_again(self, item: OnItsWay, now: float, *, ours: bool) -> bool:
        item.hub_due = inf
        if not item.asks or item.brought_by:
            return False
        linked = self.neighbours.reaches_hub() - {item.station}
        if ours:
            reached = linked or now - self._hub_said < REACHED_FOR
            if item.hub_tries >= BLIND_MAX and not reached and not item.entry.sos:
                return False
            pause = min(HUB_AGAIN_MAX, 60 * 2 ** min(item.hub_tries, 10))
        else:
            helps = linked or self.missing(item)
            if self._relays() or item.hops >= self._hops or item.hub_tries >= PRODS_MAX:
                return False
            if not helps:
                return False
            pause = min(PROD_MAX, 30 * 2 ** min(item.hub_tries, 10))
        item.hub_tries += 1
        item.hub_due = now + self._spread(pause)
        return True

    def _spread(self, pause: float) -> float:
        """Those who wait for the same are not to begin at one moment."""
        return pause * (0.75 + 0.5 * self._random())

    def _packets(self, item: OnItsWay, lacking: Sequence[int]) -> list[Repeat]:
        beside: list[Entry] = []
        if item.asks and not item.brought_by:
            beside.append(Entry(0, RelayRequest()))
        if item.station != self.station:
            beside.append(Entry(0, Source(self.station, item.hops)))
        named: list[Entry] = []
        if len(lacking) <= NAMED_MAX:
            # Ourselves, where nobody is to answer but who reaches the hub.
            names = lacking or [self.station]
            named = [Entry(item.entry.sequence, Source(number, 0)) for number in names]
        sos = item.entry.sos
        return [Repeat(item.station, [part, *beside], named, sos) for part in item.parts]

    def _tell(self, item: OnItsWay) -> list[Repeat]:
        if item.hops >= self._hops:
            return []
        ack = Ack(item.station, by_hub=True, digest=digest_of(item.entry))
        mark = Entry(0, Source(self.station, item.hops))
        return [Repeat(item.brought_by, [Entry(item.entry.sequence, ack), mark])]


def _key(item: OnItsWay) -> Key:
    return item.station, item.entry.sequence, digest_of(item.entry)
