"""How far items have come with people, as stations tell each other on the air: what is said, when,
and how often. Pure.

A *word* says how far an item of one station has come at the kit of another: with its programs, on
its person's radio, or that a person has read it. That station *answers* that the word has come.

| whose | what | beside what goes anyway | by itself, if asked for | again |
|---|---|---|---|---|
| ours | a word | at once | after 5 to 15 s | unanswered: after 30 s, doubling to an hour |
| ours | an answer | at once | within 2 s | each time that the word comes |
| another's | a word | after 3 s; not asked for: 60 s | after 3 to 7 s or more | the same |
| another's | its answer | at once | within 2 s or more | the same |

Who has passed a word on passes its answer back, and gives that in place of the word from then on.
What comes over more kits than it came lately is an echo, and goes no further: so nothing goes in a
circle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from math import inf

from fieldagent.agent.channels.air_pace import backoff
from fieldagent.agent.journal.inbound import StationOwed
from fieldagent.package.reach import Rung
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import Entry, Receipt, digest_of

ALONE_AFTER = 5.0
"""Seconds, at random up to three times as many, in which something else may go that it rides in."""
AGAIN_FIRST, AGAIN_MAX = 30.0, 3600.0
"""Seconds from saying a word to saying it again."""
ALONE_MAX = 12
"""Times that a word goes by itself, some six hours; after that it rides, until its station is
back."""
ANSWER_WITHIN = 2.0
PASS_AFTER, PASS_WITHIN = 3.0, 4.0
"""Seconds in which the answer may be heard, and then at random up to so many."""
RIDES_AFTER = 60.0
"""The same of what nobody asked for, whose answer rides too."""
ENOUGH = 2
"""Others heard passing it on, for which we leave it."""
NEARER = 7200.0
"""Seconds for which the way that brought it is known: longer than any pause."""
RIDE_MAX = 3
"""Of them in a packet of something else."""
PASSED_MAX = 1000
"""Words of others that are remembered, about 1 kB each."""


class WordKey(NamedTuple):
    """Which word it is."""

    by: int
    """The station that says it."""
    station: int
    number: int
    digest: bytes
    """Of the word itself."""


@dataclass(slots=True)
class AirWord:
    """A word, or the answer to one, which `origin` says."""

    origin: int
    entry: Entry
    alone: bool
    """It is worth a packet of its own."""
    hops: int = 0
    """Transmissions that brought it here; 0 is ours."""
    heard: float = -inf
    rides: float = inf
    """From then on it goes beside something else."""
    due: float = inf
    """Then it goes by itself."""
    tries: int = 0
    echoes: set[int] = field(default_factory=set)

    @property
    def is_answer(self) -> bool:
        """Return whether it says that the item is stored."""
        assert isinstance(self.entry.content, Receipt)
        return self.entry.content.rung is Rung.STORED

    def go(self, rides: float, due: float) -> None:
        """Let it ride beside something else from `rides` on, or go alone at `due`."""
        self.rides, self.due = rides, due if self.alone else inf
        self.echoes.clear()

    def rest(self) -> None:
        """Say it no more."""
        self.rides = self.due = inf

    def came(self, hops: int, now: float) -> bool:
        """Note that it has come, over so many transmissions; return whether that is no further than
        lately."""
        if hops > self.hops and now - self.heard < NEARER:
            return False
        self.hops, self.heard = hops, now
        return True

    def note_echo(self, sender: int) -> None:
        """Note that another said the same: after ENOUGH of them it rests."""
        self.echoes.add(sender)
        if len(self.echoes) >= ENOUGH:
            self.rest()


@dataclass(slots=True)
class _Passed:
    """What another says, and what is known of its answer."""

    word: AirWord
    answer: AirWord | None = None
    owes_answer: bool = False
    """We have passed it on, and its answer not yet."""


class Readings:
    """`station` is our own. A word's text is cut to `text_bytes`; `hops` transmissions bring it
    anywhere at most. `random` gives a share from 0 to 1. Times are of any one clock."""

    def __init__(
        self, station: int, *, text_bytes: int, hops: int, random: Callable[[], float]
    ) -> None:
        self._station = station
        self._text_bytes = text_bytes
        self._hops = hops
        self._random = random
        self._ours: dict[WordKey, tuple[StationOwed, AirWord]] = {}
        self._answers: dict[WordKey, AirWord] = {}
        self._passed: dict[WordKey, _Passed] = {}

    def owe(self, owed: Iterable[StationOwed], now: float) -> None:
        """Say these, which others are still to be told, and no other of ours."""
        known, self._ours = self._ours, {}
        for each in owed:
            text = each.text.encode()[: self._text_bytes].decode(errors="ignore")
            said = Receipt(each.station, each.digest, each.rung, text)
            entry = Entry(each.sequence, said, each.at)
            key = _key(self._station, entry)
            if key in known:
                self._ours[key] = known[key]
                continue
            word = AirWord(self._station, entry, each.asks)
            word.go(now, now + ALONE_AFTER * (1 + 2 * self._random()))
            self._ours[key] = each, word

    def answered(self, station: int, answer: Entry) -> StationOwed | None:
        """Return which of our words that station answers; None where it is none of them."""
        ours = self._ours.get(_key_of_answer(station, answer))
        return None if ours is None else ours[0]

    def answer(self, by: int, entry: Entry, now: float, *, asked: bool) -> None:
        """Answer a word of the station `by` on an item of ours, which has come and is on disk."""
        key = _key(by, entry)
        said = Entry(entry.sequence, Receipt(by, key.digest), entry.time)
        word = self._answers.setdefault(key, AirWord(self._station, said, asked))
        word.go(now, min(word.due, now + ANSWER_WITHIN * self._random()))

    def hear(
        self, by: int, entry: Entry, sender: int, hops: int, now: float, *, crowd: int, asked: bool
    ) -> None:
        """Hear a word of the station `by` on another's item, which has come from `sender`; pass it
        on, or its answer, where that may help."""
        key = _key(by, entry)
        passed = self._passed.pop(key, None) or _Passed(AirWord(by, entry, asked, hops))
        self._passed[key] = passed
        while len(self._passed) > PASSED_MAX:
            del self._passed[next(iter(self._passed))]
        if not passed.word.came(hops, now):
            passed.word.note_echo(sender)
        elif passed.answer is not None and passed.answer.hops < self._hops:
            passed.answer.go(now, now + self._spread(ANSWER_WITHIN, crowd))
        elif passed.answer is None and hops < self._hops:
            rides = now + (PASS_AFTER if asked else RIDES_AFTER)
            passed.word.go(rides, now + PASS_AFTER + self._spread(PASS_WITHIN, crowd))

    def hear_answer(
        self, station: int, answer: Entry, sender: int, hops: int, now: float, *, crowd: int
    ) -> None:
        """Hear that a station answers another's word, which `sender` brought: that word rests, and
        the answer is passed on where it is owed."""
        passed = self._passed.get(_key_of_answer(station, answer))
        if passed is None:
            return
        passed.word.rest()
        if passed.answer is None:
            passed.answer = AirWord(station, answer, passed.word.alone, hops)
        if not passed.answer.came(hops, now):
            passed.answer.note_echo(sender)
        elif passed.owes_answer and hops < self._hops:
            passed.owes_answer = False
            passed.answer.go(now, now + self._spread(ANSWER_WITHIN, crowd))

    def greet(self, station: int, now: float) -> None:
        """Say to a station that is in earshot what it may not have heard of its items; another may
        pass that on to who is out of ours."""
        for _, word in self._ours.values():
            assert isinstance(word.entry.content, Receipt)
            if word.entry.content.by == station:
                word.tries = 0
                word.go(now, now + ALONE_AFTER * (1 + 2 * self._random()))
            else:
                word.rides = min(word.rides, now)

    def is_due(self, now: float) -> bool:
        """Return whether something goes by itself."""
        return any(word.due <= now for word in self._words())

    def next_due(self, now: float) -> float:
        """Return when something more goes by itself."""
        return min((word.due for word in self._words() if word.due > now), default=inf)

    def to_say(self, now: float, *, beside: bool) -> list[AirWord]:
        """Return what goes in the next packet, `beside` something else if that goes anyway."""
        if not (beside or self.is_due(now)):
            return []
        words = [word for word in self._words() if min(word.rides, word.due) <= now]
        return words[:RIDE_MAX] if beside else words

    def said(self, word: AirWord, now: float) -> None:
        """Note that a word goes."""
        word.rest()
        if word.origin == self._station:
            self._answers = {key: each for key, each in self._answers.items() if each is not word}
        for _, ours in self._ours.values():
            if ours is word:
                again = min(AGAIN_MAX, AGAIN_FIRST * 2 ** min(word.tries, 10))
                rides = now + again * (0.75 + 0.5 * self._random())
                word.tries += 1
                alone = word.tries < ALONE_MAX
                word.go(rides, rides + ALONE_AFTER if alone else inf)
        for passed in self._passed.values():
            passed.owes_answer |= passed.word is word

    def _words(self) -> Iterator[AirWord]:
        passed = self._passed.values()
        yield from self._answers.values()
        yield from (each.answer for each in passed if each.answer is not None)
        yield from (word for _, word in self._ours.values())
        yield from (each.word for each in passed)

    def _spread(self, within: float, crowd: int) -> float:
        return backoff(self._random(), max(within, 0.5 * crowd), crowd)


def _key(by: int, entry: Entry) -> WordKey:
    assert isinstance(entry.content, Receipt)
    return WordKey(by, entry.content.by, entry.sequence, digest_of(entry))


def _key_of_answer(station: int, answer: Entry) -> WordKey:
    assert isinstance(answer.content, Receipt)
    return WordKey(answer.content.by, station, answer.sequence, answer.content.digest)
