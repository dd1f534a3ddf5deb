"""Hands what is spooled to one hook: in order per lane (a sender, or an SOS), a few lanes at once.

What is true on disk decides: after every change the heads of the spool are read anew, so a restart
resumes and nothing is remembered here but who is being served, and whether the hook is down.

A hook that `probes` says nothing of a delivery where it fails: its receiver may be away. Where it
has failed FAILURES times in a row it is *down*, as it is taken to be at first. Then what waits for
its own time goes as a probe, one at a time and ever more rarely; one that fails counts as no try.
What is taken ends that, and all that waited for its time goes.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from math import inf

import trio

from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult, HookCall, Spool
from fieldagent.webhook.schedule import RETRY_AFTER_MAX, SCHEDULE, SOS_SCHEDULE, delay, wait

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Lanes served at one moment: each costs a process or a connection."""

FAILURES = 2
PROBE, PROBE_MOST = 300.0, 1800.0
"""Seconds from a failure to a probe: at first, and at the most."""

UNREADABLE = "the stored payload cannot be read"

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
    probes: bool = False,
) -> str:
    """Run until cancelled, or return why the hook wants no more.

    `name` is the hook's in logs, `clock` gives Unix time, `chance` a number in [0, 1). `probes`: a
    call that fails tells that nobody is there, and not that this delivery is to come later.
    """
    reach = _Reach() if probes else None
    return await _Dispatch(spool, call, name, clock, schedule, at_once, chance, reach).run()


@dataclass(slots=True)
class _Reach:
    """What the last calls have shown of a hook that probes. Times are trio's."""

    failures: int = FAILURES
    """In a row. What waits for its time as we come may do so since the hook was down before."""
    since: float = -inf
    """When they began."""
    probe_at: float = -inf

    def next_probe(self) -> float:
        """Return the seconds until a probe may go."""
        down = self.failures >= FAILURES
        return self.probe_at - trio.current_time() if down else inf

    def failed(self, retry_after: float) -> None:
        now = trio.current_time()
        if not self.failures:
            self.since = now
        self.failures += 1
        rarer = PROBE * 2.0 ** min(max(self.failures - FAILURES, 0), 10)
        self.probe_at = now + max(min(rarer, PROBE_MOST), min(retry_after, RETRY_AFTER_MAX))

    def handed(self) -> bool:
        """Return whether it was down for so long that others wait for their time in vain."""
        failures, self.failures = self.failures, 0
        return failures >= FAILURES and trio.current_time() - self.since >= PROBE


@dataclass(slots=True)
class _Dispatch:
    spool: Spool
    call: HookCall
    name: str
    clock: Callable[[], float]
    schedule: Sequence[float]
    at_once: int
    chance: Callable[[], float]
    reach: _Reach | None
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
            early = (seconds := wait(delivery.not_before, now)) > 0
            if early and (seconds := min(seconds, self.next_probe(delivery))) > 0:
                return min(seconds, LOOK_AGAIN)
            self.busy.add(delivery.lane)
            self.urgent += delivery.sos
            nursery.start_soon(self.serve, delivery, early)
        return LOOK_AGAIN

    def next_probe(self, delivery: Delivery) -> float:
        """Return the seconds until this one may go before its time. What was never tried is kept
        for another reason."""
        if self.reach is None or self.busy or not delivery.attempts:
            return inf
        return self.reach.next_probe()

    async def serve(self, delivery: Delivery, early: bool) -> None:
        """Hand a payload over to its hook. A hook that runs when the agent stops may finish, or it
        would be called twice."""
        await waits.let_finish(partial(self.hand_over, delivery, early))
        self.busy.remove(delivery.lane)
        self.urgent -= delivery.sos
        self.pause.cancel()

    async def hand_over(self, delivery: Delivery, early: bool = False) -> None:
        try:
            result = await self.call(delivery)
        except (ValueError, LookupError, TypeError):
            # It must not end the hook, behind which others' payloads wait.
            log.exception("%s cannot read %s", self.name, delivery.request_id)
            result = HandoverResult(HandoverOutcome.FAILED, UNREADABLE)
        await self.settle(delivery, result, early)

    async def settle(self, delivery: Delivery, result: HandoverResult, early: bool) -> None:
        """Write down what came of a handover. Begins without a checkpoint: what the hook has must
        not be handed over once more."""
        if result.outcome is HandoverOutcome.HANDED:
            up_again = self.reach is not None and self.reach.handed()
            await self.spool.handed(delivery.request_id)
            if up_again:
                await self.spool.hasten()
        elif result.outcome is HandoverOutcome.REFUSED:
            await self.bury(delivery, result.reason)
        elif result.outcome is HandoverOutcome.FAILED:
            if self.reach is not None:
                self.reach.failed(result.retry_after)
            if early:
                at, why = delivery.not_before, result.reason
                await self.spool.postponed(delivery.request_id, at, why, tries=0)
            else:
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
