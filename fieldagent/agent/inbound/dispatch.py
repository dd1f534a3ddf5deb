"""Hands what is spooled to one hook: in order per lane (a sender, or an SOS), a few lanes at once.

What is true on disk decides: after every change the heads of the spool are read anew, so a restart
resumes and nothing is remembered here but who is being served.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial

import trio

from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult, HookCall, Spool
from fieldagent.webhook.schedule import SCHEDULE, SOS_SCHEDULE, delay, wait

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Lanes served at one moment: each costs a process or a connection."""

LOOK_AGAIN = 3600.0
"""Seconds after which the clock is asked anew: it jumps when the network sets it."""


async def dispatch(
    spool: Spool,
    call: HookCall,
    *,
    name: str,
    clock: Callable[[], float],
    schedule: Sequence[float] = SCHEDULE,
    at_once: int = AT_ONCE,
    chance: Callable[[], float] = random.random,
) -> str:
    """Run until cancelled, or return why the hook wants no more.

    `name` is the hook's in logs, `clock` gives Unix time, `chance` a number in [0, 1).
    """
    return await _Dispatch(spool, call, name, clock, schedule, at_once, chance).run()


@dataclass(slots=True)
class _Dispatch:
    spool: Spool
    call: HookCall
    name: str
    clock: Callable[[], float]
    schedule: Sequence[float]
    at_once: int
    chance: Callable[[], float]
    busy: set[str] = field(default_factory=set)
    urgent: int = 0
    """How many of those are an SOS."""
    gone: str | None = None
    pause: trio.CancelScope = field(default_factory=trio.CancelScope)

    async def run(self) -> str:
        async with trio.open_nursery() as nursery:
            while self.gone is None:
                # Asked for before the spool is read, or what comes in between would be missed.
                news = self.spool.news()
                pause = self.start_due(nursery)
                with waits.move_on_after(pause) as self.pause:
                    await news.wait()
        return self.gone

    def start_due(self, nursery: trio.Nursery) -> float:
        """Start what may be tried now; seconds until there is something to do by itself."""
        now = self.clock()
        # Those being served are due, so they come first and take up to `at_once` places.
        for delivery in self.spool.heads(2 * self.at_once):
            if delivery.lane in self.busy:
                continue
            # Hooks that are slow with others hold no SOS up: it has a place more. What is none
            # waits until they are done with it.
            if len(self.busy) >= self.at_once + delivery.sos or (self.urgent and not delivery.sos):
                break
            if (seconds := wait(delivery.not_before, now)) > 0:
                return min(seconds, LOOK_AGAIN)
            self.busy.add(delivery.lane)
            self.urgent += delivery.sos
            nursery.start_soon(self.serve, delivery)
        return LOOK_AGAIN

    async def serve(self, delivery: Delivery) -> None:
        """A hook that runs when the agent stops may finish, or it would be called twice."""
        await waits.let_finish(partial(self.hand_over, delivery))
        self.busy.remove(delivery.lane)
        self.urgent -= delivery.sos
        self.pause.cancel()

    async def hand_over(self, delivery: Delivery) -> None:
        result = await self.call(delivery)
        await self.settle(delivery, result)

    async def settle(self, delivery: Delivery, result: HandoverResult) -> None:
        """Begins without a checkpoint: what the hook has must not be handed over once more."""
        if result.outcome is HandoverOutcome.HANDED:
            await self.spool.handed(delivery.request_id)
        elif result.outcome is HandoverOutcome.REFUSED:
            await self.bury(delivery, result.reason)
        elif result.outcome is HandoverOutcome.FAILED:
            await self.postpone(delivery, result)
        else:
            self.gone = result.reason
            await self.spool.postponed(delivery.request_id, self.clock(), result.reason)

    async def postpone(self, delivery: Delivery, result: HandoverResult) -> None:
        schedule = SOS_SCHEDULE if delivery.sos else self.schedule
        seconds = delay(
            delivery.attempts + 1,
            schedule=schedule,
            retry_after=result.retry_after,
            chance=self.chance(),
        )
        if seconds is None:
            await self.bury(delivery, f"{result.reason}; given up after {len(schedule)} tries")
            return
        log.warning(
            "%s did not take %s: %s; tried again in %.0f s",
            self.name,
            delivery.request_id,
            result.reason,
            seconds,
        )
        await self.spool.postponed(delivery.request_id, self.clock() + seconds, result.reason)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        log.error(
            "%s did not take %s: %s; `fieldagent inbound replay %s` hands it over again",
            self.name,
            delivery.request_id,
            reason,
            delivery.request_id,
        )
        await self.spool.dead(delivery.request_id, reason)
