"""Decides the result for each Package in a transmission that has ended. This module does not change
the queue or the journal: `ChannelOutbox` applies the result.

| end | a complete Package, or its last fragment | another fragment | several Packages |
|---|---|---|---|
| sent | Delivered | waits for its next fragment | each separately |
| not sent | waits for a retry | the rest of a burst that was heard is sent immediately | all wait |
| refused | Error | Error | all wait and are sent alone, to find the refused one |
| refused, SOS | waits, longer each time | waits, longer each time | as above |

A single status never ends an SOS, because one flipped bit on a serial line turns "no network
service" into a refusal.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import field
from math import inf

from fieldagent.agent.journal import history, outbound
from fieldagent.agent.journal.history import REFUSED_EVENT
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import EndedDelivery, Segment, Spent
from fieldagent.agent.outbound.channel_queue import Burst, ChannelQueue
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import Channel, Status
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.wording import format_count
from fieldagent.wire.outcome import Outcome

MAY_HAVE_LEFT_REASON = "may have left"
"""History text for a transmission if it is unknown whether it left."""


@dataclass(slots=True)
class Settlement:
    ended: list[EndedDelivery] = field(default_factory=list)
    waits: dict[int, float] = field(default_factory=dict)
    """Packages that wait again, each with the time from which it may be sent, on trio's clock."""
    failed: list[int] = field(default_factory=list)
    """Packages for which the transmission counts as a failed attempt."""
    sent_alone: set[int] = field(default_factory=set)
    """Packages that are sent alone from now on."""
    event: str = "not sent"
    """Event in the history of the failed Packages."""
    is_intent_ended: bool = True


REFUSED_PAUSE_S, REFUSED_PAUSE_MAX_S = 30.0, 900.0
"""Seconds until a refused SOS is tried again: the first wait, which doubles, and the longest
wait."""


def compute_refused_pause(times: int) -> float:
    """Return the seconds until the next attempt for an SOS that has been refused `times` times
    before.
    """
    return min(REFUSED_PAUSE_MAX_S, REFUSED_PAUSE_S * 2.0 ** min(times, 10))


def settle_success(
    journal: Journal,
    queue: ChannelQueue,
    segments: list[Segment],
    ended_segments: Collection[Segment],
) -> Settlement:
    """After a transmission that left, decide which Packages end and which wait. A Package is
    Delivered when its last fragment has left. Until then, its next fragment may be sent
    immediately. `ended_segments` contains each segment after which no segment of its Package is in
    flight.
    """
    settlement = Settlement()
    for segment in segments:
        if _is_completed_by(journal, queue, segment):
            delivery = ChannelDelivery(Status.DELIVERED)
            settlement.ended.append(EndedDelivery(segment.sequence, queue.channel, delivery))
        elif segment in ended_segments:
            settlement.waits[segment.sequence] = -inf
    return settlement


def settle_failure(
    channel: Channel,
    segments: list[Segment],
    ended_segments: Mapping[Segment, Burst],
    outcome: Outcome,
    reason: str,
    due_time: float,
    refused_due: float | None = None,
) -> Settlement:
    """After a transmission that did not leave, decide which Packages end and which wait until
    `due_time`. Packages that were refused together are sent alone from now on. A Package that was
    refused alone waits until `refused_due`, or ends if `refused_due` is None. `ended_segments`
    contains each segment after which no segment of its Package is in flight, and its burst.
    """
    if outcome is Outcome.REFUSED and len(segments) == 1:
        (sequence,) = (segment.sequence for segment in segments)
        if refused_due is not None:
            waits = {sequence: refused_due}
            return Settlement(
                waits=waits, failed=[sequence], sent_alone={sequence}, event=REFUSED_EVENT
            )
        ended_delivery = EndedDelivery(
            sequence, channel, ChannelDelivery(Status.ERROR, reason or "refused")
        )
        return Settlement([ended_delivery], failed=[sequence], event=REFUSED_EVENT)
    alone = {segment.sequence for segment in segments} if outcome is Outcome.REFUSED else set()
    # A receiver that has heard a part of a burst waits for the rest, so send the rest immediately.
    waits = {
        segment.sequence: -inf if burst.heard else due_time
        for segment, burst in ended_segments.items()
    }
    tried = [segment.sequence for segment, burst in ended_segments.items() if not burst.heard]
    return Settlement(waits=waits, failed=tried, sent_alone=alone)


def _is_completed_by(journal: Journal, queue: ChannelQueue, segment: Segment) -> bool:
    """Return True if this segment completes the Package at its receiver."""
    if segment.sequence not in queue:
        # Another fragment has already completed the Package, which has ended.
        return False
    if segment.count == 1:
        return True
    if queue.limits.shared:
        return outbound.is_held_whole(journal, queue.channel, segment.sequence)
    held_positions = outbound.read_held_fragments(
        journal, queue.channel, segment.sequence, segment.count
    )
    return len(held_positions.get(outbound.ONLY_PEER, set()) | {segment.position}) == segment.count


def record_transmission(
    queue: ChannelQueue, segments: list[Segment], booked_cost: Spent, now: float
) -> Operation[None]:
    """Return the operation that records that the transmission left, also in the history of each
    Package.
    """
    note_sent = outbound.record_sent(queue.channel, segments, is_shared=queue.limits.shared)
    cost = _describe_cost(booked_cost, len(segments))

    def store(db: sqlite3.Connection) -> None:
        note_sent(db)
        for segment in segments:
            detail = _describe_fragment(segment) + cost
            history.record_event(db, [segment.sequence], queue.channel, "sent", detail, now)

    return store


def record_failed_attempts(
    queue: ChannelQueue, settlement: Settlement, reason: str, now: float
) -> Operation[None]:
    """Return the operation that counts the failed attempts, and adds them to the history of each
    Package.
    """
    sequences, event = settlement.failed, settlement.event
    tried = outbound.record_try(queue.channel, sequences, ends_intent=settlement.is_intent_ended)

    def store(db: sqlite3.Connection) -> None:
        tried(db)
        history.record_event(db, sequences, queue.channel, event, reason, now)

    return store


def record_doubt(
    channel: Channel, segments: list[Segment], reason: str, now: float
) -> Operation[None]:
    """Return the operation that records why it is unknown whether the transmission left."""
    sequences = [segment.sequence for segment in segments]
    return lambda db: history.record_event(
        db, sequences, channel, MAY_HAVE_LEFT_REASON, reason, now
    )


def record_copy(
    channel: Channel, segments: list[Segment], cost: Spent, now: float
) -> Operation[None]:
    """Return the operation that records that these segments are sent again, and the possible cost
    of the earlier copy.
    """
    sequences = [segment.sequence for segment in segments]
    detail = "unknown whether the earlier copy was sent"
    if cost.doubtful:
        detail += f"; it may have cost {format_count(cost.doubtful, 'credit')}"
    elif cost.bytes:
        detail += f"; it may have cost {format_count(cost.bytes, 'byte')}"
    return lambda db: history.record_event(db, sequences, channel, "goes again", detail, now)


def _describe_fragment(segment: Segment) -> str:
    return "" if segment.count == 1 else f"fragment {segment.position + 1} of {segment.count}: "


_CREDITS = re.compile(r", ([0-9]+) credits?(?:, shared by ([0-9]+))?$")


def parse_credits(cost: str) -> float:
    """Return the credits in a cost text that `record_transmission` stored. If several Packages
    shared the credits, return the share of one Package.
    """
    match = _CREDITS.search(cost)
    return int(match[1]) / int(match[2] or 1) if match else 0.0


def _describe_cost(booked_cost: Spent, package_count: int) -> str:
    unit = "credit" if booked_cost.credits == 1 else "credits"
    cost = f", {booked_cost.credits} {unit}" if booked_cost.credits else ""
    shared = f", shared by {package_count}" if package_count > 1 else ""
    return f"{booked_cost.bytes} bytes{cost}{shared}"
