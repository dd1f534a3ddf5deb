"""Calls to the satellite operators: handing over MT messages, and repeating ring alerts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import trio

from fieldagent.hub import idle
from fieldagent.hub.field.mobile_terminated import pack_due_messages
from fieldagent.hub.field.operator_handover import (
    CALL_SECONDS,
    OperatorCall,
    claim_messages,
    compute_next_due,
    delete_unneeded,
    is_due,
    is_needed,
    record_verdict,
    release_claims,
)
from fieldagent.hub.operator.contract import FarModem, Operator, Verdict
from fieldagent.hub.operator.failures import make_no_answer, make_not_set_up
from fieldagent.hub.records import claims, operator_trouble, ring_alerts
from fieldagent.hub.records.ring_alerts import RingAlert
from fieldagent.hub.store.contract import ANY_WRITE_TOPIC, Db, Store
from fieldagent.hub.store.persist import persist, skip_if_unavailable
from fieldagent.store.group import StoreFailed, StoreFull, StoreUnavailable
from fieldagent.system import waits
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.supervisor import Note, describe_error, log_fault
from fieldagent.system.wording import format_count
from fieldagent.wire.outcome import Outcome

log = logging.getLogger(__name__)

NoteCall = Callable[[str, str, int], None]
"""Called after each call, with the operator, the result and the bytes."""


async def run(
    store: Store,
    operators: Mapping[str, Operator],
    *,
    clock: Callable[[], float],
    note_fault: Note = log_fault,
    note_call: NoteCall = lambda operator, result, size: None,
) -> None:
    """Send due messages over satellite until cancelled. Each operator has at most `CALLS` calls at
    a time. An operator that does not respond delays no other operator.
    """
    with skip_if_unavailable():
        await store.commit(operator_trouble.call_again_after_start)
    open_calls = _OpenCalls()
    async with trio.open_nursery() as nursery:
        while True:
            news, any_write, end_event = (
                store.get_event("satellite"),
                store.get_event(ANY_WRITE_TOPIC),
                open_calls.ended,
            )
            calls: list[OperatorCall] = []
            rings: list[RingAlert] = []
            busy, next_due = dict(open_calls.calls), 0.0
            with skip_if_unavailable():
                work = await store.read(partial(_find_due_work, clock=clock, busy=busy))
                if work.calls:
                    await store.commit(lambda db: pack_due_messages(db, clock()))
                    take = partial(_claim, clock=clock, busy=busy)
                    calls = await claims.commit_claim(store, take, release_claims)
                if work.rings:
                    rings = await store.commit(
                        lambda db: ring_alerts.claim_ring_alerts(db, clock())
                    )
                next_due = work.soonest
            for call in calls:
                carried = partial(carry_out, store, operators, call, clock, note_fault, note_call)
                open_calls.calls[call.operator] += 1
                nursery.start_soon(waits.run_to_the_end, partial(open_calls.carry, call, carried))
            for ring in rings:
                nursery.start_soon(ring_again, store, operators, ring, note_fault)
            if not calls:
                with open_calls.wait_for_end(end_event):
                    await idle.wait_until_due(any_write, next_due - clock(), news=news)


class _OpenCalls:
    """Counters of the operator calls in progress and of the ended calls."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        """Number of calls in progress, by operator."""
        self.ended = 0
        """Number of calls that have ended."""
        self._rest = trio.CancelScope()

    async def carry(self, call: OperatorCall, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            self.calls[call.operator] -= 1
            self.ended += 1
            self._rest.cancel()

    @contextmanager
    def wait_for_end(self, ended_count: int) -> Iterator[None]:
        """Wait until a call ends. Do not wait if a call has ended since the caller read
        `ended_count`.
        """
        self._rest = trio.CancelScope()
        if self.ended != ended_count:
            self._rest.cancel()
        with self._rest:
            yield


def _claim(db: Db, *, clock: Callable[[], float], busy: Mapping[str, int]) -> list[OperatorCall]:
    return claim_messages(db, clock(), busy)


class _DueWork(NamedTuple):
    calls: bool
    rings: bool
    soonest: float
    """Unix time when the next message or ring alert becomes due if no new one is stored. The other
    fields contain the work that is due now."""


def _find_due_work(db: Db, *, clock: Callable[[], float], busy: Mapping[str, int]) -> _DueWork:
    now = clock()
    next_due = min(compute_next_due(db, busy), ring_alerts.compute_next_ring(db))
    return _DueWork(is_due(db, now, busy), ring_alerts.is_due(db, now), next_due)


async def carry_out(
    store: Store,
    operators: Mapping[str, Operator],
    call: OperatorCall,
    clock: Callable[[], float],
    note_fault: Note = log_fault,
    note_call: NoteCall = lambda operator, result, size: None,
) -> None:
    """Hand a message to its operator if it is still needed, and record the result. If the hub is
    killed before the result is stored, the hub sends the same bytes again.
    """
    try:
        operator = operators.get(call.operator)
        if operator is None:
            verdict = Verdict(Outcome.NOT_SENT, make_not_set_up(call.operator))
        elif not await store.read(lambda db: is_needed(db, call, clock())):
            await store.commit(lambda db: delete_unneeded(db, call))
            return
        else:
            verdict = await _call_in(operator, call, note_fault)
        _log_trouble(call, verdict)
        note_call(call.operator, verdict.outcome.value, len(call.body))
        if alarm := await persist(store, lambda db: record_verdict(db, call, verdict, clock())):
            log.error("%s", alarm)
    except StoreUnavailable:
        pass  # The store logs the outage itself.
    except StoreFull as trouble:
        log.error("%s", trouble)
    except StoreFailed:
        raise
    except Exception as error:
        note_fault(error, f"the end of MT message {call.id}")


async def ring_again(
    store: Store, operators: Mapping[str, Operator], ring: RingAlert, note_fault: Note = log_fault
) -> None:
    """Ask the operator for another ring alert to a modem. End the ring alerts if the operator
    refuses. Only StoreFailed is raised; other failures are logged or reported.
    """
    description = (
        f"{ring.name}, for which the operator holds {format_count(ring.waiting, 'MT message')}"
    )
    try:
        if (operator := operators.get(ring.operator)) is None:
            return
        verdict = await operator.ring(ring.imei)
        if verdict.outcome is Outcome.SENT:
            log.info("ring alert repeated: %s", description)
            return
        log.warning("ring alert not repeated: %s: %s", description, verdict.reason)
        if verdict.outcome is Outcome.REFUSED:
            await store.commit(lambda db: ring_alerts.end_ring_alerts(db, ring.device))
    except StoreUnavailable:
        pass
    except StoreFull as trouble:
        log.error("%s", trouble)
    except StoreFailed:
        raise
    except Exception as error:
        note_fault(error, f"the ring of {ring.name}")


async def _call_in(operator: Operator, call: OperatorCall, note_fault: Note) -> Verdict:
    try:
        with trio.move_on_after(CALL_SECONDS * 0.9):
            modem = FarModem(call.kind, call.address, call.tries, call.since)
            return await operator.send(
                call.imei, call.body, number=call.id, priority=call.urgent, modem=modem
            )
    except Exception as error:
        # A bug in the hub caused this error. The operator may or may not have the message.
        note_fault(error, f"MT message {call.id}")
        reason = f"the call failed in the hub; see its log: {describe_error(error)}"
        return Verdict(Outcome.DOUBTFUL, make_no_answer(reason))
    return Verdict(Outcome.DOUBTFUL, make_no_answer("the operator did not answer in time"))


def _log_trouble(call: OperatorCall, verdict: Verdict) -> None:
    description = f"MT message {call.id} of {len(call.body)} bytes to {call.name}"
    if verdict.outcome is Outcome.SENT:
        log.info("%s: the operator has it", description)
    else:
        log.warning("%s: %s; trying again", description, verdict.reason)
