"""Number of simultaneous requests to a webhook. Pure functions.

A *lane* contains the items of one kit for one webhook. Each SOS is a separate lane. A *run*
contains the requests that one process sends from a lane, one after the other. Rules:

1. Each accepted request increases the limit of simultaneous runs of its webhook by one, up to
   WIDTH_MOST. Each failure halves the limit.
2. After DOWN_AFTER_FAILURES consecutive failures, the webhook is *down*. Such a webhook gets one
   run and one SOS per PROBE_PAUSE_MIN_S seconds. A request that is not due yet can be such a probe.
3. When a webhook is up again, it gets all requests that were waiting. An SOS that is due is always
   sent, even to a webhook that is down. Up to SOS_RUNS_MAX of them are sent at the same time. SOS
   requests that were never tried come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from math import inf

from fieldagent.system.lazy_dataclass import dataclass

WIDTH, WIDTH_MOST = 4, 32
"""Number of simultaneous runs to one webhook in one process: at the start, and the largest."""
RUNS_MAX = 128
"""Largest number of simultaneous runs in one process, not counting SOS."""
SOS_RUNS_MAX = 64
"""Largest number of simultaneous SOS requests to one webhook in one process. Each request needs a
connection, and requests that failed together are due together again."""
DOWN_AFTER_FAILURES = 2
PROBE_PAUSE_MIN_S = 15.0
"""Shortest time in seconds from a failure to the next probe. The longest time is twice as long."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Oldest waiting delivery of one kit to one webhook."""

    webhook: int
    item: int
    sender: int
    not_before: float
    claimed_until: float
    attempts: int

    @property
    def sos(self) -> bool:
        """Return True if the lane is for an SOS. Each SOS has a separate lane."""
        return self.sender < 0


@dataclass(slots=True)
class Flow:
    """State of the requests to one webhook."""

    width: int = WIDTH
    under_way: int = 0
    sos_under_way: int = 0
    failures: int = 0
    probe_at: float = 0.0

    @property
    def down(self) -> bool:
        """Return True if the receiver is considered unreachable."""
        return self.failures >= DOWN_AFTER_FAILURES

    def record_success(self) -> bool:
        """Record a success. Return True if the webhook was down before."""
        was_down = self.down
        self.failures, self.width = 0, min(self.width + 1, WIDTH_MOST)
        return was_down

    def record_failure(self, now: float, chance: float) -> None:
        """Record a failure: halve the width, and set the time of the next probe. `chance` is a
        random number in [0, 1).
        """
        self.failures, self.width = self.failures + 1, max(self.width // 2, 1)
        self.probe_at = now + PROBE_PAUSE_MIN_S * (1 + chance)


@dataclass(slots=True)
class Flows:
    """State of the requests from one process to all webhooks."""

    of: dict[int, Flow] = field(default_factory=dict)

    def get_flow(self, webhook: int) -> Flow:
        """Return the flow of a webhook. If the webhook is new, create a flow."""
        return self.of.setdefault(webhook, Flow())

    def choose(
        self, lanes: Iterable[Lane], now: float, failing: Mapping[int, float]
    ) -> tuple[list[Lane], float]:
        """Return the lanes to claim now, SOS first, and the Unix time when other lanes are due.

        `failing` is the result of `deliveries.list_failing`.
        """
        by_webhook: dict[int, list[Lane]] = {}
        for lane in lanes:
            by_webhook.setdefault(lane.webhook, []).append(lane)
        for webhook in self.of.keys() - by_webhook.keys():
            if not self.of[webhook].under_way and not self.of[webhook].sos_under_way:
                del self.of[webhook]
        chosen_lanes: list[Lane] = []
        soonest = inf
        free = RUNS_MAX - sum(flow.under_way for flow in self.of.values())
        # The webhook with the fewest runs comes first, so that no webhook waits too long.
        for webhook in sorted(by_webhook, key=self._count_under_way):
            ready_lanes, next_due = self._choose_lanes(webhook, by_webhook[webhook], now, failing)
            urgent_lanes = [lane for lane in ready_lanes if lane.sos]
            others = [lane for lane in ready_lanes if not lane.sos][: max(free, 0)]
            free -= len(others)
            chosen_lanes += urgent_lanes + others
            soonest = min(soonest, next_due)
        return sorted(chosen_lanes, key=lambda lane: not lane.sos), soonest

    def _count_under_way(self, webhook: int) -> int:
        # Do not create a flow here, because a new flow may have to start in the state "down".
        return self.of[webhook].under_way if webhook in self.of else 0

    def _choose_lanes(
        self, webhook: int, lanes: list[Lane], now: float, failing: Mapping[int, float]
    ) -> tuple[list[Lane], float]:
        if webhook in failing and webhook not in self.of:
            # The webhook was down before this process started, so probe it at once.
            self.of[webhook] = Flow(width=1, failures=DOWN_AFTER_FAILURES)
        flow = self.get_flow(webhook)
        open_ = [lane for lane in lanes if lane.claimed_until <= now]
        due = [lane for lane in open_ if lane.not_before <= now]
        urgent_lanes = sorted((lane for lane in due if lane.sos), key=lambda lane: lane.attempts)
        urgent_lanes = urgent_lanes[: max(SOS_RUNS_MAX - flow.sos_under_way, 0)]
        next_time = min((at for lane in lanes if (at := _compute_time(lane)) > now), default=inf)
        if not flow.down:
            own = [lane for lane in due if not lane.sos][: max(flow.width - flow.under_way, 0)]
            return urgent_lanes + own, next_time
        probe_at = max(flow.probe_at, failing.get(webhook, 0.0))
        if flow.under_way:
            return urgent_lanes, next_time
        if probe_at > now:
            return urgent_lanes, min(next_time, probe_at)
        # A failed delivery may be sent early, to see whether the receiver is up again. An
        # escalation that was never tried waits until it is due.
        may = [lane for lane in open_ if lane.not_before <= now or lane.attempts]
        may.sort(key=lambda lane: (lane.not_before, lane.item))
        probes = [lane for lane in may if not lane.sos][:1]
        if not urgent_lanes and not flow.sos_under_way:
            urgent_lanes = [lane for lane in may if lane.sos][:1]
        return urgent_lanes + probes, next_time


def _compute_time(lane: Lane) -> float:
    return max(lane.not_before, lane.claimed_until)
