"""Planned outages, and a record of the times at which they happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from random import Random
from typing import NoReturn

import trio

from fieldagent.extensions.lab.drill.plan import HOUR_S, Outages
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass

DAY_S = 86_400.0
START = 1_790_035_200.0
"""Unix time at which a drill begins: midnight on 22 September 2026."""


@dataclass(slots=True)
class OutageCondition:
    """Outages of one condition, such as a kit's view of the sky."""

    what: str
    """Reason, for people, why messages wait during such an outage."""
    plan: Outages
    random: Random
    away: bool = False
    log: list[tuple[float, bool]] = field(default_factory=list)
    """Times on trio's clock at which an outage began (True) or ended (False)."""

    async def run_plan(self, on_change: Callable[[bool], None]) -> NoReturn:
        """Run the plan of outages until cancelled. When an outage begins, call `on_change` with
        True. When it ends, call `on_change` with False.
        """
        is_lost, until = False, self._compute_next(is_lost=True)
        while True:
            now = trio.current_time()
            if until <= now:
                is_lost = not is_lost
                until = now + self._compute_next(is_lost=not is_lost)
            hour = now % DAY_S / HOUR_S
            is_away = is_lost or any(hours.has(hour) for hours in self.plan.hours)
            if is_away != self.away:
                self.away = is_away
                self.log.append((now, is_away))
                on_change(is_away)
            next_hour = (now // HOUR_S + 1) * HOUR_S if self.plan.hours else until
            await waits.sleep(min(until, next_hour) - trio.current_time())

    def _compute_next(self, *, is_lost: bool) -> float:
        """Return a random number of seconds: until the next outage begins if `is_lost` is True,
        otherwise until the current outage ends.
        """
        share, mean = self.plan.lost, self.plan.lasting
        if not share:
            return 1e12
        return self.random.expovariate(1 / (mean * (1 - share) / share if is_lost else mean))

    def compute_outage(self, begin: float, end: float) -> float:
        """Return the total duration, in seconds, of the outages between two times."""
        total, since = 0.0, None
        for at, is_away in [*self.log, (end, False)]:
            if is_away and since is None:
                since = at
            elif not is_away and since is not None:
                total += max(0.0, min(at, end) - max(since, begin))
                since = None
        return total
