"""Chooses the interval of tests on an idle link, and detects devices that cut the link. Pure: the
caller reports events with their times.

Proxies and address translators drop a connection after a long silence: nginx after 60 s
(proxy_read_timeout), HAProxy after its `timeout tunnel`, and a cellular network without notice to
either end. A test takes about 250 bytes, and a new link about 5 000 bytes. Rules if no interval is
set:

1. The interval begins at 45 s. After three consecutive answered tests it grows by half.
2. A link is considered cut if it breaks without a close frame and the first attempt reaches the hub
   again. If the kit was out of coverage, the break is no evidence.
3. Two breaks after the same idle time, without any traffic between, are a rule of the path. An
   unanswered test is weaker evidence: three are needed.
4. The interval is then three quarters of that idle time. Once a day a longer interval is tried,
   because the kit may have moved. The next break after the same idle time confirms the rule at
   once.

A set interval does not change, but cuts of the link are recorded.
"""

from __future__ import annotations

from math import inf

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

FIRST, SHORTEST, LONGEST = 45.0, 5.0, 300.0
"""First, shortest and longest interval in seconds."""
SHORTEST_GUESS = 30.0
"""Shortest interval in seconds if only unanswered tests indicate a cut. In poor coverage, shorter
intervals would make a link expensive without a benefit."""
GROWTH, MARGIN = 1.5, 0.75
ANSWERED_TESTS_ENOUGH = 3
"""Number of consecutive answered tests after which the interval grows."""
LONGER_TRY_INTERVAL_S = 86_400.0


class LinkBreak(NamedTuple):
    """Idle time of a link at its break."""

    idle: float
    exact: bool
    """True if the link broke after exactly this time. False if the break was found only when data
    was sent after that time."""

    def equals(self, other_break: LinkBreak) -> bool:
        """Return True if both idle times are equal within 2 s or one twentieth."""
        return abs(self.idle - other_break.idle) <= max(2.0, self.idle / 20)


@dataclass(slots=True)
class _LinkTimes:
    """Times when the last message on the current link was received and sent, in seconds of the
    caller's clock.
    """

    heard: float
    sent_at: float
    unanswered: float | None = None
    """Idle time in seconds before the first message that still waits for its acknowledgement."""

    def idle(self, now: float) -> float:
        return now - max(self.heard, self.sent_at)


class Keepalive:
    """Keepalive interval of an agent's successive links. `interval` is in seconds. 0 means no
    keepalive, and None means that the interval is chosen automatically.
    """

    def __init__(self, interval: float | None = 0) -> None:
        self._adapts = interval is None
        self.interval = FIRST if interval is None else interval or inf
        self._link = _LinkTimes(-inf, -inf)
        self._answered_count = 0
        self._broken: LinkBreak | None = None
        """Break of the last link, kept until the next attempt shows whether the hub can be
        reached."""
        self._alike: list[LinkBreak] = []
        self.cut: LinkBreak | None = None
        """Idle time after which the network path cuts a link, if it is known."""
        self._learnt = -inf

    @property
    def promise(self) -> int:
        """Return the longest time in seconds between two messages that this end promises, or 0 for
        no promise.
        """
        longest = LONGEST if self._adapts else self.interval
        return 0 if longest == inf else round(longest)

    @property
    def heard_at(self) -> float:
        """Return the time of the peer's last message on this link, or -inf before the first
        message.
        """
        return self._link.heard

    def begin(self, now: float) -> None:
        """Begin a link, when the peer's hello has arrived."""
        self._link = _LinkTimes(now, now)

    def record_received(self, now: float) -> None:
        """Record the time of a message from the peer, by the caller's clock in seconds."""
        self._link.heard = now

    def record_sent(self, now: float, *, needs_answer: bool = False) -> None:
        """Record a sent message. If `needs_answer`, the peer must acknowledge it."""
        if needs_answer and self._link.unanswered is None:
            self._link.unanswered = self._link.idle(now)
        self._link.sent_at = now

    def compute_due_time(self) -> float:
        """Return the time of the next ping, if this end sends nothing before, or inf for never."""
        return self._link.sent_at + self.interval

    def record_acknowledged(self, now: float) -> None:
        """Record that the peer has acknowledged all messages. The path has thus not cut the link in
        the idle time before these messages, so the interval may grow.
        """
        idle, self._link.unanswered = self._link.unanswered, None
        if idle is None:
            return
        self._alike = [cut for cut in self._alike if idle < cut.idle]
        if self.cut is not None and idle > self.cut.idle + 2:
            self.cut = None
        if idle >= 0.9 * self.interval:
            self._answered_count += 1
            if self._adapts and self._answered_count >= ANSWERED_TESTS_ENOUGH:
                self._lengthen(now)

    def _lengthen(self, now: float) -> None:
        bound = LONGEST
        if self.cut is not None and now - self._learnt < LONGER_TRY_INTERVAL_S:
            bound = self._find_lower_step(self.cut)
        longer = min(bound, self.interval * GROWTH)
        if longer > self.interval:
            self.interval, self._answered_count = longer, 0

    def end(self, now: float, *, is_explained: bool) -> None:
        """Record the end of the link, or of an attempt to open it. `is_explained` is True if an end
        closed the link with a reason, and False if the link broke.
        """
        link, self._link = self._link, _LinkTimes(-inf, -inf)
        if is_explained:
            self._broken = None
        elif link.unanswered is not None:
            self._broken = LinkBreak(link.unanswered, exact=False)
        elif link.heard > -inf:
            self._broken = LinkBreak(link.idle(now), exact=True)

    def record_missed(self) -> None:
        """Record a failed attempt to reach the hub, because there is no coverage or the hub is
        down.
        """
        self._broken = None

    def record_reached(self, now: float) -> None:
        """Record that the hub has been reached again, and compare the last break with earlier
        breaks.
        """
        broken, self._broken = self._broken, None
        if broken is None or broken.idle < SHORTEST:
            return
        self._answered_count = 0
        self._alike = [*(cut for cut in self._alike if cut.equals(broken)), broken]
        is_same_cut = self.cut is not None and self.cut.equals(broken)
        if is_same_cut or len(self._alike) >= (2 if broken.exact else 3):
            self.cut, self._learnt, self._alike = broken, now, []
            if self._adapts:
                self.interval = min(self.interval, self._find_lower_step(broken))

    @staticmethod
    def _find_lower_step(link_break: LinkBreak) -> float:
        return max(SHORTEST if link_break.exact else SHORTEST_GUESS, MARGIN * link_break.idle)

    def describe_path(self) -> str:
        """Return a text for people about the network path, or '' if there is nothing to report."""
        if self.cut is None:
            return ""
        preposition = "after" if self.cut.exact else "within"
        idle = f"{self.cut.idle:.0f}"
        if self.interval < self.cut.idle:
            interval_text = f"{self.interval:.0f}"
            return (
                f"something in the network cuts idle links {preposition} {idle} s:"
                f" tested every {interval_text} s"
            )
        lower = f"{self._find_lower_step(self.cut):.0f}"
        return (
            f"something in the network cuts idle links {preposition} {idle} s: remove "
            f"cellular-ping, or set it to"
            f" {lower}"
        )
