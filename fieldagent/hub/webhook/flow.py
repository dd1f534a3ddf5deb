"""How much a webhook is given at once; pure.

A *lane* is what one sender has for one webhook, and an SOS is a lane of its own. A *run* is what
one process posts of a lane, one post after another. Rules:

1. Each post that is taken widens a webhook by one run, up to WIDTH_MOST; each failure halves it.
2. Where FAILURES in a row ended none in a success, it is *down*: it is given one run each PROBE
   seconds, and one of an SOS beside that. What waits for its own time goes as such a probe too.
3. Whoever is up again gets all that waited for its time. An SOS that is due always goes, also to a
   webhook that is down: up to SOS_MOST at once, those first that were never tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from math import inf

from fieldagent.system.lazy_dataclass import dataclass

WIDTH, WIDTH_MOST = 4, 32
"""Runs under way to one webhook in one process, at first and at most."""
AT_ONCE = 128
"""Runs under way in one process, those of SOS not counted."""
SOS_MOST = 64
"""Of SOS, under way to one webhook in one process: each takes a connection, and those that failed
together fall due together."""
FAILURES = 2
PROBE = 15.0
"""Seconds from a failure to the next probe, at least; twice that at most."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The oldest delivery of a sender that waits for a webhook."""

    webhook: int
    item: int
    sender: int
    not_before: float
    claimed_until: float
    attempts: int

    @property
    def sos(self) -> bool:
        """Return whether it is of an SOS, which has a lane of its own."""
        return self.sender < 0


@dataclass(slots=True)
class Flow:
    """To one webhook."""

    width: int = WIDTH
    under_way: int = 0
    sos_under_way: int = 0
    failures: int = 0
    probe_at: float = 0.0

    @property
    def down(self) -> bool:
        """Return whether its receiver is taken for away."""
        return self.failures >= FAILURES

    def handed(self) -> bool:
        """Note a success; return whether it ends a time of being down."""
        was_down = self.down
        self.failures, self.width = 0, min(self.width + 1, WIDTH_MOST)
        return was_down

    def failed(self, now: float, chance: float) -> None:
        """Note a failure. `chance` is in [0, 1)."""
        self.failures, self.width = self.failures + 1, max(self.width // 2, 1)
        self.probe_at = now + PROBE * (1 + chance)


@dataclass(slots=True)
class Flows:
    """To all webhooks, from one process."""

    of: dict[int, Flow] = field(default_factory=dict)

    def to(self, webhook: int) -> Flow:
        """Return the flow to a webhook, a new one where there was none."""
        return self.of.setdefault(webhook, Flow())

    def choose(
        self, lanes: Iterable[Lane], now: float, failing: Mapping[int, float]
    ) -> tuple[list[Lane], float]:
        """Return the lanes to be claimed now, those of SOS first, and when others fall due.

        `failing` are webhooks that have taken nothing since a failure, and until when each wants to
        be left alone.
        """
        by_webhook: dict[int, list[Lane]] = {}
        for lane in lanes:
            by_webhook.setdefault(lane.webhook, []).append(lane)
        for webhook in self.of.keys() - by_webhook.keys():
            if not self.of[webhook].under_way and not self.of[webhook].sos_under_way:
                del self.of[webhook]
        chosen: list[Lane] = []
        soonest = inf
        free = AT_ONCE - sum(flow.under_way for flow in self.of.values())
        # Who has least under way comes first: each has its turn.
        for webhook in sorted(by_webhook, key=self._under_way):
            ready_lanes, next_due = self._of_one(webhook, by_webhook[webhook], now, failing)
            urgent = [lane for lane in ready_lanes if lane.sos]
            others = [lane for lane in ready_lanes if not lane.sos][: max(free, 0)]
            free -= len(others)
            chosen += urgent + others
            soonest = min(soonest, next_due)
        return sorted(chosen, key=lambda lane: not lane.sos), soonest

    def _under_way(self, webhook: int) -> int:
        # Without making its flow: one that is not there yet may begin as down.
        return self.of[webhook].under_way if webhook in self.of else 0

    def _of_one(
        self, webhook: int, lanes: list[Lane], now: float, failing: Mapping[int, float]
    ) -> tuple[list[Lane], float]:
        if webhook in failing and webhook not in self.of:
            # It was down before this process came: it is asked at once.
            self.of[webhook] = Flow(width=1, failures=FAILURES)
        flow = self.to(webhook)
        open_ = [lane for lane in lanes if lane.claimed_until <= now]
        due = [lane for lane in open_ if lane.not_before <= now]
        urgent = sorted((lane for lane in due if lane.sos), key=lambda lane: lane.attempts)
        urgent = urgent[: max(SOS_MOST - flow.sos_under_way, 0)]
        later = min((at for lane in lanes if (at := _at(lane)) > now), default=inf)
        if not flow.down:
            own = [lane for lane in due if not lane.sos][: max(flow.width - flow.under_way, 0)]
            return urgent + own, later
        probe_at = max(flow.probe_at, failing.get(webhook, 0.0))
        if flow.under_way:
            return urgent, later
        if probe_at > now:
            return urgent, min(later, probe_at)
        # An escalation that was never tried waits for its time.
        may = [lane for lane in open_ if lane.not_before <= now or lane.attempts]
        may.sort(key=lambda lane: (lane.not_before, lane.item))
        probes = [lane for lane in may if not lane.sos][:1]
        if not urgent and not flow.sos_under_way:
            urgent = [lane for lane in may if lane.sos][:1]
        return urgent + probes, later


def _at(lane: Lane) -> float:
    return max(lane.not_before, lane.claimed_until)
