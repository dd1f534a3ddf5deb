"""Builds the configured hooks, and hands each its spooled payloads. Payloads of the same lane (a
sender, or an SOS) stay in order. A few lanes are served at the same time.

After every change, the first payloads of the spool are read from the disk again, so that the
deliveries continue after a restart. Only the lanes in progress and the hook's failures are kept in
memory.

If a hook `probes`, a failure does not show that the payload is at fault, because the receiver may
be away. At the start, and after FAILURES consecutive failures, the hook is considered *down*.
Payloads that wait for a retry are then sent as probes, one at a time and less and less often. A
failed probe does not count as an attempt. After a success, all payloads that wait for a retry are
sent.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field
from functools import partial
from math import inf

import trio

from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal import inbound
from fieldagent.agent.journal.inbound import UnacceptedPayloads
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.settings import Settings
from fieldagent.store.group import StoreFailed
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.supervisor import Note, describe_error, log_fault
from fieldagent.system.wording import format_count
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult, HookCall, Spool
from fieldagent.webhook.schedule import (
    RETRY_AFTER_MAX_S,
    SCHEDULE,
    SOS_SCHEDULE,
    compute_delay,
    compute_wait,
)

log = logging.getLogger(__name__)


LANES_MAX = 4
"""Number of lanes that are served at the same time. Each lane takes a process or a connection."""

FAILURES = 2
PROBE, PROBE_MOST = 300.0, 1800.0
"""Seconds from a failure to the next probe: the first wait, and the longest wait."""

UNREADABLE = "the stored payload cannot be read"

RECHECK_AFTER_S = 3600.0
"""Longest time in seconds until the clock is read again, because the clock may jump when the
network sets it."""


async def dispatch(
    spool: Spool,
    call: HookCall,
    *,
    name: str,
    clock: Callable[[], float],
    schedule: Sequence[float] = SCHEDULE,
    lanes_max: int = LANES_MAX,
    draw_random: Callable[[], float] = random.random,
    probes: bool = False,
) -> str:
    """Hand over payloads until the hook accepts no more payloads, and return the reason.

    `name` is the hook's name in logs, `clock` returns the journal's elapsed time, and `draw_random`
    a number in [0, 1). If `probes`, the hook is probed while it is down (see the top of this
    module).
    """
    reach = _HookReachability() if probes else None
    return await _Dispatch(spool, call, name, clock, schedule, lanes_max, draw_random, reach).run()


@dataclass(slots=True)
class _HookReachability:
    """State of a hook that probes, derived from its last calls. Times are on trio's clock."""

    failures: int = FAILURES
    """Number of consecutive failures. The hook starts as down, because the payloads that wait at
    the start may wait since an earlier outage."""
    since: float = -inf
    """Time of the first of the consecutive failures."""
    probe_at: float = -inf

    def compute_next_probe(self) -> float:
        """Return the seconds until a probe may be sent, or inf if the hook is not down."""
        down = self.failures >= FAILURES
        return self.probe_at - trio.current_time() if down else inf

    def record_failure(self, retry_after: float) -> None:
        now = trio.current_time()
        if not self.failures:
            self.since = now
        self.failures += 1
        rarer = PROBE * 2.0 ** min(max(self.failures - FAILURES, 0), 10)
        self.probe_at = now + max(min(rarer, PROBE_MOST), min(retry_after, RETRY_AFTER_MAX_S))

    def record_success(self) -> bool:
        """Record a success. Return True if the hook was down for at least `PROBE` seconds, so that
        all waiting payloads are sent now.
        """
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
    reachability: _HookReachability | None
    busy: set[str] = field(default_factory=set)
    urgent: int = 0
    """Number of busy lanes with an SOS."""
    end_reason: str | None = None
    pause: trio.CancelScope = field(default_factory=trio.CancelScope)

    async def run(self) -> str:
        async with trio.open_nursery() as nursery:
            while self.end_reason is None:
                # Get the event before reading the spool, so that a change in between also sets the
                # event.
                news = self.spool.get_news()
                pause = self.start_due(nursery)
                with waits.move_on_after(pause) as self.pause:
                    await news.wait()
        return self.end_reason

    def start_due(self, nursery: trio.Nursery) -> float:
        """Start the deliveries that are due. Return the seconds until the next delivery is due, at
        most RECHECK_AFTER_S.
        """
        now = self.clock()
        # The list can begin with up to `at_once` deliveries that are in progress.
        for delivery in self.spool.get_heads(2 * self.at_once):
            if delivery.lane in self.busy:
                continue
            # For an SOS, one more lane may be busy, so that slow deliveries do not delay it. Other
            # deliveries wait until the hook has handled the SOS.
            if len(self.busy) >= self.at_once + delivery.sos or (self.urgent and not delivery.sos):
                break
            early = (seconds := compute_wait(delivery.not_before, now)) > 0
            if early and (seconds := min(seconds, self.compute_next_probe(delivery))) > 0:
                return min(seconds, RECHECK_AFTER_S)
            self.busy.add(delivery.lane)
            self.urgent += delivery.sos
            nursery.start_soon(self.serve, delivery, early)
        return RECHECK_AFTER_S

    def compute_next_probe(self, delivery: Delivery) -> float:
        """Return the seconds until this delivery may be sent as a probe, or inf if it may not. A
        delivery without a failed attempt is not a probe, because it waits for another reason.
        """
        if self.reachability is None or self.busy or not delivery.attempts:
            return inf
        return self.reachability.compute_next_probe()

    async def serve(self, delivery: Delivery, is_early: bool) -> None:
        """Hand a payload to the hook. `is_early` is True for a probe, which is sent before the
        payload is due. If the agent stops, a running call may finish, so that the hook is not
        called twice for the same payload.
        """
        await waits.run_to_the_end(partial(self.hand_over, delivery, is_early))
        self.busy.remove(delivery.lane)
        self.urgent -= delivery.sos
        self.pause.cancel()

    async def hand_over(self, delivery: Delivery, is_early: bool = False) -> None:
        try:
            result = await self.call(delivery)
        except (ValueError, LookupError, TypeError):
            # An error here must not stop the hook, because other senders' payloads wait for it.
            log.exception("%s cannot read %s", self.name, delivery.request_id)
            result = HandoverResult(HandoverOutcome.FAILED, UNREADABLE)
        await self.settle(delivery, result, is_early)

    async def settle(self, delivery: Delivery, result: HandoverResult, is_early: bool) -> None:
        """Store the result of a hand-over. No trio checkpoint comes before the storage, so that an
        accepted payload is never handed over again. A failed probe (`is_early`) does not count as
        an attempt.
        """
        if result.outcome is HandoverOutcome.HANDED:
            up_again = self.reachability is not None and self.reachability.record_success()
            await self.spool.mark_handed_over(delivery.request_id)
            if up_again:
                await self.spool.hasten()
        elif result.outcome is HandoverOutcome.REFUSED:
            await self.bury(delivery, result.reason)
        elif result.outcome is HandoverOutcome.FAILED:
            if self.reachability is not None:
                self.reachability.record_failure(result.retry_after)
            if is_early:
                at, reason = delivery.not_before, result.reason
                await self.spool.postpone(delivery.request_id, at, reason, tries=0)
            else:
                await self.postpone(delivery, result)
        else:
            self.end_reason = result.reason
            await self.spool.postpone(delivery.request_id, self.clock(), result.reason)

    async def postpone(self, delivery: Delivery, result: HandoverResult) -> None:
        schedule = SOS_SCHEDULE if delivery.sos else self.schedule
        seconds = compute_delay(
            delivery.attempts + 1,
            schedule=schedule,
            retry_after=result.retry_after,
            random_share=self.chance(),
        )
        if seconds is None:
            await self.bury(delivery, f"{result.reason}; given up after {len(schedule)} tries")
            return
        log.warning(
            "%s did not accept %s: %s; tried again in %.0f s",
            self.name,
            delivery.request_id,
            result.reason,
            seconds,
        )
        await self.spool.postpone(delivery.request_id, self.clock() + seconds, result.reason)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        log.error(
            "%s did not accept %s: %s; `fieldagent inbound replay %s` hands it over again",
            self.name,
            delivery.request_id,
            reason,
            delivery.request_id,
        )
        await self.spool.bury(delivery.request_id, reason)


@dataclass(slots=True)
class Hook:
    """A configured hook. The journal stores the hook's payloads under `name`, so the name must
    never change.
    """

    name: str
    call: HookCall
    end_reason: str | None = None
    """Reason why the hook is no longer called. None while it is used."""
    by_itself: bool = True
    """True if the agent calls `run_hook` for this hook, False if the extension that made the hook
    calls it."""
    probes: bool = False
    """True if a failed call usually means that the receiver is away (see `dispatch`)."""


def make_hooks(settings: Settings, emit: Callable[[str], None]) -> list[Hook]:
    """Return the configured hooks: the script, the webhook, or both. Each hook gets every payload.
    `emit` prints the script's lines.
    """
    hooks = []
    # Import a hook's module here, so that an agent without that hook saves the memory.
    if (command := settings.inbound_hook) is not None:
        from fieldagent.agent.inbound.script import run_script

        deadline = settings.inbound_hook_deadline

        async def run(delivery: Delivery) -> HandoverResult:
            return await run_script(command, delivery, emit=emit, deadline=deadline)

        hooks.append(Hook("script", run))
    if (address := settings.webhook_address) is not None:
        from fieldagent.webhook.post import post

        secrets = settings.webhook_secret
        call = partial(post, address, secrets=secrets, clock=time.time)
        hooks.append(Hook("webhook", call, probes=True))
    return hooks


def list_notices(
    hooks: Collection[Hook], unaccepted_payloads: Collection[UnacceptedPayloads]
) -> Iterator[str]:
    """Yield notices for people about hooks that are no longer called, and about payloads that a
    configured hook has not accepted.
    """
    for hook in hooks:
        if hook.end_reason is not None:
            remedy = "correct it, and restart the agent"
            yield f"the {hook.name} is not used any more: {hook.end_reason}; {remedy}"
    configured = {hook.name for hook in hooks}
    for each in unaccepted_payloads:
        if each.hook not in configured:
            continue
        payloads = format_count(each.payloads, "payload")
        if each.state == "dead":
            remedy = (
                "`fieldagent inbound list --state dead` shows them, `fieldagent inbound replay"
                " --dead` hands them over again"
            )
            yield f"the {each.hook} did not accept {payloads}: {each.reason}; {remedy}"
        else:
            yield f"the {each.hook} is tried again with {payloads}: {each.reason}"


async def run_hook(
    hook: Hook, journal: Journal, inbox: Inbox, note_fault: Note = log_fault
) -> None:
    """Hand over spooled payloads until the hook accepts no more, or until the journal fails.

    An unexpected error in a call counts as a failed attempt. The call is repeated less and less
    often, and only payloads of the same sender are delayed.
    """

    async def call(delivery: Delivery) -> HandoverResult:
        try:
            return await hook.call(delivery)
        except Exception as error:
            note_fault(error, delivery.request_id)
            reason = f"the call failed in the agent; see its log: {describe_error(error)}"
            return HandoverResult(HandoverOutcome.FAILED, reason)

    spool = JournalSpool(hook.name, journal, lambda: inbox.news, inbox.report_stages)
    try:
        name, clock = f"the {hook.name}", journal.clock.now
        hook.end_reason = await dispatch(spool, call, name=name, clock=clock, probes=hook.probes)
        log.error("the %s is not used any more: %s", hook.name, hook.end_reason)
    except* StoreFailed:
        log.error("the %s stops, because its progress cannot be stored", hook.name)


@dataclass(frozen=True, slots=True)
class JournalSpool:
    """Implements `Spool` for one hook, with the payloads in the journal."""

    hook: str
    journal: Journal
    get_news: Callable[[], trio.Event]
    notify_receipt: Callable[[], None] = lambda: None
    """Function that is called when a sender must receive a receipt."""

    def get_heads(self, limit: int) -> list[Delivery]:
        return [
            Delivery(*row) for row in inbound.list_oldest_waiting(self.journal, self.hook, limit)
        ]

    async def mark_handed_over(self, request_id: str) -> None:
        at = self.journal.clock.date(self.journal.clock.now())
        if await self.journal.persist(inbound.mark_handed_over(self.hook, request_id, at)):
            self.notify_receipt()

    async def postpone(
        self, request_id: str, due_time: float, reason: str, *, tries: int = 1
    ) -> None:
        put_off = inbound.postpone(self.hook, request_id, due_time, reason, tries=tries)
        await self.journal.persist(put_off)

    async def hasten(self) -> None:
        await self.journal.persist(inbound.hasten(self.hook))

    async def bury(self, request_id: str, reason: str) -> None:
        await self.journal.persist(inbound.mark_dead(self.hook, request_id, reason))
