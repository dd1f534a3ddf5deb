"""Outbox of one channel, which its driver uses (`channels.contract`).

`load` packs the Packages that are due, `record_intent` records that a modem is about to send them,
and `settle` records the result. `settle` decides the consequences for each Package in the
transmission, and stores all of them in one commit.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from math import inf

import trio

from fieldagent.agent.channels.contract import ChannelLink, Intent, MessageLimits, Transmission
from fieldagent.agent.journal import history, incident, losses, outbound
from fieldagent.agent.journal.journal import Journal, Operation, combine_operations
from fieldagent.agent.journal.records import DAMAGED_DELIVERY, EndedDelivery, Segment, Spent
from fieldagent.agent.outbound.budget import Budget
from fieldagent.agent.outbound.channel_limits import compute_price
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.packing import Packing
from fieldagent.agent.outbound.piggyback import Piggyback, PiggybackEntries
from fieldagent.agent.outbound.settlement import (
    MAY_HAVE_LEFT_REASON,
    Settlement,
    compute_refused_pause,
    record_copy,
    record_doubt,
    record_failed_attempts,
    record_transmission,
    settle_failure,
    settle_success,
)
from fieldagent.package.package import Status
from fieldagent.wire.envelope import Entry
from fieldagent.wire.outcome import Outcome

log = logging.getLogger(__name__)

FAILURE_PAUSE_S, FAILURE_PAUSE_MAX_S = 5.0, 60.0
"""Seconds that a Package waits after a failure of the driver: the first value times the number of
the Package's failures, at most the second value."""
RECHECK_AFTER_S = 3600.0
"""Maximum seconds between two checks of the budget. The wall clock, which determines the day, may
be set in this time."""


class ChannelOutbox:
    """Implements `channels.contract.Outbox`, and on the air `RadioOutbox`."""

    def __init__(
        self,
        journal: Journal,
        packing: Packing,
        budget: Budget,
        piggyback: Piggyback,
        endings: Endings,
        link: ChannelLink,
    ) -> None:
        self.channel = packing.queue.channel
        self.link = link
        self._journal = journal
        self._queue = packing.queue
        self.packing = packing
        self.budget = budget
        self._piggyback = piggyback
        self._endings = endings
        self._numbers = count(1)
        self._piggybacked: dict[int, PiggybackEntries] = {}
        self._expired: list[EndedDelivery] = []
        intent = outbound.read_intent(journal, self.channel)
        self._intent = None if intent is None else intent[0]

    def __len__(self) -> int:
        return len(self._queue)

    async def run(self) -> None:
        """Store the ends of expired Packages, forever."""
        while True:
            # First store the ends that could not be stored before.
            self._expired = self._expired or await self._queue.wait_for_expired()
            for reason, times in Counter(each.delivery.reason for each in self._expired).items():
                log.warning("%s: %d %s before they could be sent", self.channel, times, reason)
            now = self._endings.clock()
            notes = [
                losses.record_damage(each.sequence, None, now)
                for each in self._expired
                if each.delivery is DAMAGED_DELIVERY
            ]
            await self._endings.record(self._expired, combine_operations(*notes))
            self._expired = []

    def report(self, origin: int, report: Entry) -> None:
        """Report to the peer which fragments of an item have arrived."""
        self._piggyback.report(origin, report)
        self._queue.wake()

    def load_peer_entries(self) -> None:
        """Load the entries for the peer from the journal, and wake the driver."""
        self._piggyback.load_entries()
        self._queue.wake()

    def set_limits(self, message_limits: MessageLimits) -> None:
        size, fill, tariff = message_limits
        limits = replace(self._queue.limits, size=size, fill=fill, tariff=tariff)
        if limits != self._queue.limits:
            self._queue.limits = limits
            self.packing.forget_prepared()
            self._queue.wake()

    async def wait_until_ready(self, *, urgent: bool = False) -> None:
        while not self._is_ready(urgent):
            changed = self._queue.changed
            now = trio.current_time()
            # Wake when a retry becomes due or a new day begins. Wake at least every
            # RECHECK_AFTER_S, because the wall clock may be set.
            renewal = now + min(self.budget.compute_renewal_wait(), RECHECK_AFTER_S)
            with trio.move_on_at(min(self._queue.compute_next_change(now), renewal)):
                await changed.wait()

    def _is_ready(self, urgent: bool) -> bool:
        sequence = self._queue.find_foremost(trio.current_time())
        if sequence is None:
            return (
                self._piggyback.is_worth_sending() and not urgent and self.compute_allowance() != 0
            )
        if urgent and not self._queue.is_urgent(sequence):
            return False
        return self._is_within_budget(sequence)

    async def fix_dates(self) -> None:
        await self.packing.fix_dates()

    def load(self, capacity: int) -> Transmission | None:
        now = trio.current_time()
        if self._queue.find_foremost(now) is not None:
            self._queue.end_gathering()
        first = self._queue.find_foremost(now)
        is_urgent = first is not None and self._queue.is_urgent(first)
        ordinary = self.budget.compute_affordable(capacity)
        others = first is not None and self._queue.is_sos_of_others(first)
        if first is None or not _is_first(self._journal, self._queue, first):
            capacity = (
                self.budget.compute_affordable(capacity, urgent=True, is_halved=others)
                if is_urgent
                else ordinary
            )
        packed = self.packing.pack(now, capacity, ordinary, self._piggyback)
        if packed is None:
            return None
        number = next(self._numbers)
        self._queue.in_flight[number], self._piggybacked[number] = (
            packed.segments,
            packed.piggybacked,
        )
        if self.packing.acks is not None:
            self.packing.acks.expect(number, packed.segments)
        answerable = bool(packed.segments)
        is_urgent = is_urgent or packed.urgent
        others = others if packed.segments else packed.is_of_others
        part = any(segment.count > 1 for segment in packed.segments)
        return Transmission(
            number, packed.body, is_urgent, packed.attempts, answerable, packed.more, part, others
        )

    def get_unsettled(self) -> Intent | None:
        return self._intent

    async def record_intent(self, transmission: Transmission, *, modem: str, at_modem: int) -> None:
        intent = Intent(transmission, modem, at_modem)
        segments = self._queue.in_flight[transmission.number]
        await self._journal.persist(outbound.record_intent(self.channel, intent, segments))
        self._intent = intent

    async def record_copy(self, transmission: Transmission) -> None:
        """Record that the transmission is sent again, because it is unknown whether the earlier
        copy left. Book the possible cost of the earlier copy.
        """
        spent_credits = self._sum_in_doubt(transmission)
        segments = self._queue.in_flight[transmission.number]
        note = record_copy(self.channel, segments, spent_credits, self._endings.clock())
        await self._journal.persist(combine_operations(note, self.budget.book(spent_credits)))

    async def book_doubtful_cost(self, transmission: Transmission) -> None:
        """Book the credits that a session may have cost, because the gateway may have its
        message.
        """
        await self._journal.persist(self.budget.book(self._sum_in_doubt(transmission)))

    def get_packages(self, transmission: Transmission) -> Sequence[int]:
        return [each.sequence for each in self._queue.in_flight[transmission.number]]

    async def record_sms(self, packages: Sequence[int]) -> None:
        now = self._endings.clock()
        await self._journal.persist(
            lambda db: history.record_event(db, packages, self.channel, history.SMS_EVENT, "", now)
        )

    def _sum_in_doubt(self, transmission: Transmission) -> Spent:
        price = compute_price(self._queue.limits.tariff, len(transmission.body))
        # Bytes in doubt are booked as spent. Credits in doubt are booked separately, and the page
        # shows both numbers.
        return Spent(doubtful=price.credits) if price.credits else price

    async def settle(
        self,
        transmission: Transmission,
        outcome: Outcome,
        *,
        reason: str = "",
        retry_after: float = 0.0,
    ) -> None:
        number, now = transmission.number, self._endings.clock()
        segments = self._queue.in_flight[number]
        if outcome is Outcome.DOUBTFUL:
            await self._journal.persist(record_doubt(self.channel, segments, reason, now))
            return
        sent = outcome is Outcome.SENT
        piggybacked = self._piggybacked.get(number, PiggybackEntries())
        if sent:
            finished_bursts = self._queue.bursts.finish_segments(segments, is_sent=True)
            settlement = settle_success(self._journal, self._queue, segments, finished_bursts)
            price = compute_price(self._queue.limits.tariff, len(transmission.body))
            record = combine_operations(
                record_transmission(self._queue, segments, price, now),
                self.budget.book(price),
                lambda db: self._piggyback.record(db, piggybacked),
            )
        else:
            refused_due = None
            if outcome is Outcome.REFUSED:
                refused_due = _compute_refused_due(self._journal, self._queue, segments)
            settlement = _finish_failed(
                self._queue, segments, outcome, reason, retry_after, refused_due
            )
            record = record_failed_attempts(self._queue, settlement, reason, now)
        await self._apply(settlement, record)
        if sent:
            self.link.last_success = now
        self._end(number, is_sent=sent)

    def _end(self, number: int, *, is_sent: bool) -> None:
        if self._intent is not None and self._intent.transmission.number == number:
            self._intent = None
        self._end_transmission(number, is_sent=is_sent)

    async def release(
        self, transmission: Transmission, *, reason: str, retry_after: float = 0.0
    ) -> None:
        segments = self._queue.in_flight[transmission.number]
        settlement = _finish_failed(self._queue, segments, Outcome.DOUBTFUL, reason, retry_after)
        settlement.event = MAY_HAVE_LEFT_REASON
        record = record_failed_attempts(self._queue, settlement, reason, self._endings.clock())
        await self._apply(settlement, record)
        self._end(transmission.number, is_sent=False)

    async def _apply(self, settlement: Settlement, record: Operation[None]) -> None:
        """Store the decisions in one commit, and then update the queue."""
        waits = settlement.waits
        decided = [*settlement.ended, *self._queue.compute_ends(waits)]
        await self._endings.record(decided, record)
        self._queue.alone |= settlement.sent_alone
        self.packing.forget_prepared()
        for each in settlement.ended:
            is_delivered = each.delivery.status is Status.DELIVERED
            self._queue.finish(each.sequence, is_arrived=is_delivered)
        requeued = [self._queue.requeue(sequence, due) for sequence, due in waits.items()]
        late = [each for each in requeued if each is not None and each not in decided]
        if late:
            # These Packages were withdrawn or replaced during the commit, so they end instead of
            # waiting again.
            await self._endings.record(late)

    def _end_transmission(self, number: int, *, is_sent: bool) -> None:
        piggybacked = self._piggybacked.pop(number, PiggybackEntries())
        beside_packages = bool(self._queue.in_flight[number])
        self._piggyback.mark_settled(piggybacked, is_sent=is_sent, beside_packages=beside_packages)
        if self.packing.acks is not None:
            self.packing.acks.drop(number)
        # The result of the transmission is on disk, so its Packages are no longer in flight.
        self._queue.mark_landed(segment.sequence for segment in self._queue.in_flight.pop(number))

    async def requeue_lost(self) -> None:
        """Put the Packages that a failed driver had in flight back into the queue, except those of
        a recorded intent, whose result is still unknown.

        From now on, each of these Packages is sent alone, after longer and longer waits. So a
        Package that makes the driver fail does not delay other Packages.
        """
        started_number = None if self._intent is None else self._intent.transmission.number
        lost_numbers = [number for number in self._queue.in_flight if number != started_number]
        started_segments = [] if started_number is None else self._queue.in_flight[started_number]
        self._queue.bursts.clear()
        now = trio.current_time()
        if started_number is None and not self._queue.get_in_flight():
            # The driver failed before it took a Package. If a Package caused the failure, that
            # Package is the next one in the queue.
            self._queue.pop_due(now, includes_bursts=False)
        numbers_back = self._queue.get_in_flight() - {
            segment.sequence for segment in started_segments
        }
        waits = {
            sequence: now
            + min(FAILURE_PAUSE_MAX_S, FAILURE_PAUSE_S * self.packing.count_tries(sequence))
            for sequence in numbers_back
        }
        settlement = Settlement(
            waits=waits,
            failed=sorted(numbers_back),
            sent_alone=numbers_back,
            is_intent_ended=started_number is None,
        )
        reason, now = "the driver failed", self._endings.clock()
        await self._apply(settlement, record_failed_attempts(self._queue, settlement, reason, now))
        for number in lost_numbers:
            self._end_transmission(number, is_sent=False)
        # The transmission of these Packages was not completed, so they are no longer in flight.
        self._queue.mark_landed(numbers_back)

    async def wait_for_acknowledgement(self, transmission: Transmission) -> bool:
        return self.packing.acks is None or await self.packing.acks.wait_for_acknowledgement(
            transmission.number
        )

    def try_again(self) -> None:
        self._queue.try_again()

    def compute_allowance(self, *, urgent: bool = False, mailbox: bool = False) -> int | None:
        # While an SOS waits for an answer, a mailbox check is urgent, because the answer ends the
        # repeats, which cost more. This also applies to a neighbour's SOS, because its answer
        # arrives only through this kit.
        now = self._journal.clock.date(self._endings.clock())
        urgent = urgent or (mailbox and incident.is_answer_awaited(self._journal, now))
        return self.budget.compute_remaining(urgent=urgent, mailbox=mailbox)

    def describe_hold(self) -> str:
        sequence = self._queue.find_foremost(trio.current_time())
        if sequence is None or self._is_within_budget(sequence):
            return ""
        return self.budget.describe_limit()

    def _is_within_budget(self, sequence: int) -> bool:
        is_urgent = self._queue.is_urgent(sequence)
        others = is_urgent and self._queue.is_sos_of_others(sequence)
        allowance = self.budget.compute_remaining(urgent=is_urgent, is_halved=others)
        if allowance is None or self.packing.compute_cost(sequence) <= allowance:
            return True
        return _is_first(self._journal, self._queue, sequence)

    async def spend(self, credit: int) -> None:
        await self._journal.persist(self.budget.book(Spent(0, credit)))


def _finish_failed(
    queue: ChannelQueue,
    segments: list[Segment],
    outcome: Outcome,
    reason: str,
    retry_after: float,
    refused_due: float | None = None,
) -> Settlement:
    """End the bursts of these segments, which have not left, and decide the result for their
    Packages. The Packages wait `retry_after` seconds; 0 means no wait. `refused_due` is as in
    `settle_failure`.
    """
    finished_bursts = queue.bursts.finish_segments(segments, is_sent=False)
    due = trio.current_time() + retry_after if retry_after > 0 else -inf
    return settle_failure(
        queue.channel, segments, finished_bursts, outcome, reason, due, refused_due
    )


def _compute_refused_due(
    journal: Journal, queue: ChannelQueue, segments: list[Segment]
) -> float | None:
    """Return the time, on trio's clock, of the next attempt for a refused SOS. For other Packages
    and for a closed SOS, return None: their status becomes Error.
    """
    sequence = segments[0].sequence if len(segments) == 1 else None
    if sequence is None or sequence not in queue or not queue.is_urgent(sequence):
        return None
    number = incident.find_incident(journal, sequence)
    if number is not None and incident.is_over(journal, incident.OWN_STATION, number):
        return None
    pause = compute_refused_pause(history.count_refusals(journal, sequence, queue.channel))
    log.warning("%s refused SOS item %d: tried again in %.0f s", queue.channel, sequence, pause)
    return trio.current_time() + pause


def _is_first(journal: Journal, queue: ChannelQueue, sequence: int) -> bool:
    """Return True for an SOS of the kit's own people if no item of its incident has left on this
    channel yet. Such an SOS is sent even if the budget is spent.
    """
    if queue.is_sos_of_others(sequence):
        return False
    number = incident.find_incident(journal, sequence)
    items = [sequence] if number is None else incident.list_items(journal, number)
    return queue.is_urgent(sequence) and not history.has_left(journal, queue.channel, items)
