"""When an idle link is tested, and what cuts it. Pure: the caller says what happens, and when.

Proxies and address translators forget a connection that is silent for too long: nginx after 60 s
(proxy_read_timeout), HAProxy as its `timeout tunnel` says, a cellular network without a word to
either end. A test takes some 250 bytes, a new link some 5 000. Rules, where no interval is set:

1. The interval begins at 45 s. After three tests in a row that were answered it grows by half.
2. A link counts as cut when it breaks off without a close frame and the hub is reached again at
   the first attempt: a kit that is out of coverage proves nothing.
3. Two breaks at the same idle time, without a word between, are a rule of the path. A test that
   nobody answers tells less than that: of these it takes three.
4. The interval is then three quarters of that idle time. Once a day a longer one is tried, for the
   kit may have moved; the next break at the same idle time confirms the rule at once.

An interval that is set stays as it is; what cuts the link is noted all the same.
"""

from __future__ import annotations

from math import inf

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

FIRST, SHORTEST, LONGEST = 45.0, 5.0, 300.0
"""Seconds."""
SHORTEST_GUESS = 30.0
"""Where nobody said that the link was cut, but tests were lost. Shorter intervals would make a link
in poor coverage dear, and mend nothing."""
GROWTH, MARGIN = 1.5, 0.75
SURE = 3
"""Tests in a row that were answered."""
TRY_LONGER = 86_400.0


class Cut(NamedTuple):
    """How long a link was idle when it broke off."""

    idle: float
    exact: bool
    """Otherwise it was found broken by what was said after that time."""

    def equals(self, other: Cut) -> bool:
        """Return whether both are of one length, give or take 2 s or a twentieth."""
        return abs(self.idle - other.idle) <= max(2.0, self.idle / 20)


@dataclass(slots=True)
class _LinkTimes:
    """Of the link at this moment."""

    heard: float
    said: float
    unanswered: float | None = None
    """How long it had been idle before the first word that waits for its acknowledgement."""

    def idle(self, now: float) -> float:
        return now - max(self.heard, self.said)


class Keepalive:
    """For all links of an agent, one after the other; `interval` is in seconds, 0 for never, and
    None where it is to be found out."""

    def __init__(self, interval: float | None = 0) -> None:
        self._adapts = interval is None
        self.interval = FIRST if interval is None else interval or inf
        self._link = _LinkTimes(-inf, -inf)
        self._answered = 0
        self._broken: Cut | None = None
        """Of the last link, until it is known whether the hub can be reached."""
        self._alike: list[Cut] = []
        self.cut: Cut | None = None
        """The rule of the path, once it is known."""
        self._learnt = -inf

    @property
    def promise(self) -> int:
        """Return the seconds after which this end says something at the latest; 0 promises
        nothing."""
        longest = LONGEST if self._adapts else self.interval
        return 0 if longest == inf else round(longest)

    @property
    def heard_at(self) -> float:
        """Return when the peer was heard last on this link; `-inf` where there is none."""
        return self._link.heard

    def begin(self, now: float) -> None:
        """Begin a link: the peer's hello has come."""
        self._link = _LinkTimes(now, now)

    def heard(self, now: float) -> None:
        """Note that the peer was heard, whatever it said."""
        self._link.heard = now

    def said(self, now: float, *, awaits: bool = False) -> None:
        """Note that something left; with `awaits` the peer is to acknowledge it."""
        if awaits and self._link.unanswered is None:
            self._link.unanswered = self._link.idle(now)
        self._link.said = now

    def due(self) -> float:
        """Return when this end is to ping, if it says nothing else before; `inf` for never."""
        return self._link.said + self.interval

    def answered(self, now: float) -> None:
        """Note that all that was said is acknowledged."""
        idle, self._link.unanswered = self._link.unanswered, None
        if idle is None:
            return
        self._alike = [cut for cut in self._alike if idle < cut.idle]
        if self.cut is not None and idle > self.cut.idle + 2:
            self.cut = None
        if idle >= 0.9 * self.interval:
            self._answered += 1
            if self._adapts and self._answered >= SURE:
                self._lengthen(now)

    def _lengthen(self, now: float) -> None:
        bound = LONGEST
        if self.cut is not None and now - self._learnt < TRY_LONGER:
            bound = self._below(self.cut)
        longer = min(bound, self.interval * GROWTH)
        if longer > self.interval:
            self.interval, self._answered = longer, 0

    def end(self, now: float, *, explained: bool) -> None:
        """End the link, or its beginning; where nobody said why, it broke off."""
        link, self._link = self._link, _LinkTimes(-inf, -inf)
        if explained:
            self._broken = None
        elif link.unanswered is not None:
            self._broken = Cut(link.unanswered, exact=False)
        elif link.heard > -inf:
            self._broken = Cut(link.idle(now), exact=True)

    def missed(self) -> None:
        """Note that an attempt to reach the hub failed: coverage was lost, or the hub is away."""
        self._broken = None

    def reached(self, now: float) -> None:
        """Note that the hub is reached again."""
        broken, self._broken = self._broken, None
        if broken is None or broken.idle < SHORTEST:
            return
        self._answered = 0
        self._alike = [*(cut for cut in self._alike if cut.equals(broken)), broken]
        known = self.cut is not None and self.cut.equals(broken)
        if known or len(self._alike) >= (2 if broken.exact else 3):
            self.cut, self._learnt, self._alike = broken, now, []
            if self._adapts:
                self.interval = min(self.interval, self._below(broken))

    @staticmethod
    def _below(cut: Cut) -> float:
        return max(SHORTEST if cut.exact else SHORTEST_GUESS, MARGIN * cut.idle)

    def note(self) -> str:
        """Return what people are to know of the path; empty where nothing is."""
        if self.cut is None:
            return ""
        when = "after" if self.cut.exact else "within"
        text = f"something between cuts idle links {when} {self.cut.idle:.0f} s"
        if self.interval < self.cut.idle:
            return f"{text}: tested every {self.interval:.0f} s"
        return f"{text}: remove cellular-ping, or set it to {self._below(self.cut):.0f}"
