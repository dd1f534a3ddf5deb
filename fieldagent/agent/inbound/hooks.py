"""Builds the configured hooks, and runs each with its payloads from the journal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial

import trio

from fieldagent.agent.inbound.dispatch import dispatch
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal import inbound
from fieldagent.agent.journal.inbound import UnacceptedPayloads
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.settings import Settings
from fieldagent.store.group import StoreFailed
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.supervisor import Note, describe_error, log_fault
from fieldagent.system.wording import format_count
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult, HookCall

log = logging.getLogger(__name__)


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
    """True if the agent runs the hook all the time, False if the hook's owner runs it."""
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
    """Yield notices for people about payloads that a hook has not accepted."""
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
    """Called when a sender must receive a receipt."""

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
