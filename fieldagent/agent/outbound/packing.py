"""Chooses the content of one transmission, and encodes it.

The first Package of the queue is packed first. A Package that is too large is sent in fragments,
one in each transmission. If a Package is small, other Packages are added until the transmission is
full. Each candidate is encoded only once.

A radio does not report which stations received a packet. So each transmission on the air waits for
a station's acknowledgement of each Package in it. An acknowledgement of a later transmission shows
that an earlier one was missed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import field, replace
from math import inf

import trio

from fieldagent.agent.channels.air_pace import ROUND_FRAGMENTS_MAX, WINDOW
from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.dating import list_foremost_undated, store_dates
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import DAMAGED_DELIVERY, DamagedPackage, Segment
from fieldagent.agent.outbound.channel_limits import Capacity, ChannelLimits, TooLarge
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.item_identity import make_marked_entries, make_numbered_entry
from fieldagent.agent.outbound.piggyback import Draft, Piggyback, PiggybackEntries, RepeatedPacket
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import Package, Status
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import Ack, AuthorMark, Entry, RelayRequest, Source, encode
from fieldagent.wire.fragments import find_missing_fragments

LISTENING_AFTER_HEARD_S = 60.0
"""Seconds for which we assume that a station listens, after the last packet of any station."""


@dataclass(slots=True)
class _AwaitedAck:
    segments: list[Segment]
    missing: set[int]
    """Packages in the transmission that no station has confirmed."""
    is_over: trio.Event = field(default_factory=trio.Event)
    missed: bool = False
    """True if a station has acknowledged a later transmission but not this one, or has answered the
    round of fragments without confirming this one."""
    is_transmitted: bool = False
    """True if the complete round of fragments has been transmitted, so that an Ack now shows all
    fragments that arrived."""


class AwaitedAcks:
    """Expected acknowledgements by the transmission's number; a later transmission has a higher
    number.
    """

    def __init__(self) -> None:
        self._awaited: dict[int, _AwaitedAck] = {}
        self._heard_at = -inf

    def expect(self, transmission_number: int, segments: Iterable[Segment]) -> None:
        """Expect acknowledgements for these segments, which are sent in the packet
        `transmission_number`.
        """
        segments = list(segments)
        self._awaited[transmission_number] = _AwaitedAck(
            segments, {segment.sequence for segment in segments}
        )

    def drop(self, transmission_number: int) -> None:
        """Stop expecting acknowledgements for the transmission `transmission_number`."""
        self._awaited.pop(transmission_number, None)

    async def wait_for_acknowledgement(self, transmission_number: int) -> bool:
        """Wait until stations have confirmed all Packages in the packet, and return True. Return
        False as soon as an acknowledgement shows that a part was missed. If no acknowledgement is
        expected, return True immediately.
        """
        awaited = self._awaited.get(transmission_number)
        if awaited is None:
            return True
        awaited.is_transmitted = True
        await awaited.is_over.wait()
        return not awaited.missed

    def record_heard_station(self) -> None:
        """Record that a station was heard just now."""
        self._heard_at = trio.current_time()

    def apply_ack(self, sequence: int, ack: Ack) -> bool:
        """Apply a station's acknowledgement to the waiting transmissions. Return False if it
        confirms none of them.
        """
        with_it = [
            (number, awaited, segment)
            for number, awaited in self._awaited.items()
            for segment in awaited.segments
            if segment.sequence == sequence
        ]
        last = max((n for n, _, segment in with_it if _is_covered(ack, segment)), default=0)
        for number, awaited, segment in with_it:
            if _is_covered(ack, segment):
                awaited.missing.discard(sequence)
            elif number < last or (awaited.is_transmitted and ack.count == segment.count > 1):
                awaited.missed = True
            if awaited.missed or not awaited.missing:
                awaited.is_over.set()
        return last > 0

    def is_somebody_listening(self) -> bool:
        """Return True if a station was heard within LISTENING_AFTER_HEARD_S."""
        return trio.current_time() - self._heard_at < LISTENING_AFTER_HEARD_S


def _is_covered(ack: Ack, segment: Segment) -> bool:
    return ack.whole or (ack.count == segment.count and segment.position in ack.arrived)


log = logging.getLogger(__name__)


SOS_ALONE_TRIES = 2
"""Number of attempts in which an SOS is sent alone in a message, before other items may be
added."""


@dataclass(frozen=True, slots=True)
class PackedTransmission:
    """Encoded content of one transmission, and the segments that it contains."""

    body: bytes
    segments: list[Segment]
    piggybacked: PiggybackEntries
    attempts: int = 0
    """Number of attempts for the first Package since a part of that Package last left."""
    more: bool = False
    """True if another fragment of the same Package may follow immediately."""
    urgent: bool = False
    """True if the content is a repeated SOS."""
    is_of_others: bool = False
    """True if the content is repeated for another station."""


@dataclass(frozen=True, slots=True)
class _NextPart:
    """Next part of a Package to send: all of it, or a fragment."""

    segment: Segment
    origin: int
    """Station that sent the Package first. 0 for this kit."""
    entry: Entry
    body: bytes
    """Encoded envelope, or encoded entry, that contains only this part."""
    attempts: int
    undated: bool = False
    """True if the Package was accepted after `fix_dates`, so that it waits for the next
    transmission."""
    marks: tuple[Entry, ...] = ()
    """Additional entries about the item for the hub, such as an UnauthenticatedMark. They are left
    out if they would cost a credit or another transmission."""


class Packing:
    """Packs the transmissions of one channel. They are tagged with `key`, or encrypted with it if
    `is_sealed`. On the air, `station` is the sender's number, and `packet_bytes` the size of the
    largest packet.
    """

    def __init__(
        self,
        journal: Journal,
        queue: ChannelQueue,
        *,
        key: bytes | None = None,
        is_sealed: bool = False,
        station: int = 0,
        packet_bytes: int | None = None,
    ) -> None:
        self._journal = journal
        self.queue = queue
        self._channel = queue.channel
        self._key = key
        self._sealed = is_sealed
        self._station = station
        self.acks = AwaitedAcks() if self._limits.shared else None
        """Expected acknowledgements. None if the channel needs none."""
        self._packet_bytes = packet_bytes
        self._prepared: _NextPart | None = None
        """The last Package that was examined, if it can be sent in one transmission."""

    @property
    def _limits(self) -> ChannelLimits:
        return self.queue.limits

    @property
    def capacity(self) -> Capacity:
        """Space that one transmission has for Packages."""
        size = self._limits.size if self._packet_bytes is None else self._packet_bytes
        return Capacity(size, self._key is not None, self._limits.shared)

    def compute_cost(self, sequence: int) -> int:
        """Return the cost, in the tariff's units, of the Package's next transmission if no other
        Package shares it.
        """
        try:
            return self._limits.tariff.compute_units(len(self._choose_next(sequence).body))
        except (DamagedPackage, TooLarge):
            # Ignore the error here, because `pack` handles it.
            return 0

    def count_tries(self, sequence: int) -> int:
        """Return the number of attempts on this channel since a part of the Package last left."""
        try:
            return outbound.read_to_send(self._journal, self._channel, sequence)[1]
        except DamagedPackage:
            return 0

    async def fix_dates(self) -> None:
        """Fix the dates of the Packages that may leave next. A fixed date no longer changes."""
        undated = list_foremost_undated(self._journal, self._channel, 1 + self._limits.companions)
        if undated:
            await self._journal.persist(store_dates(undated, self._journal.clock.date(0.0)))
            self.forget_prepared()

    def tag_with(self, key: bytes) -> None:
        """Tag transmissions with this key from now on."""
        self._key = key
        self.forget_prepared()

    def forget_prepared(self) -> None:
        """Forget the prepared Package, because of an attempt, a new date or a new key."""
        self._prepared = None

    def pack(
        self, now: float, capacity: int, ordinary_bytes: int, piggyback: Piggyback
    ) -> PackedTransmission | None:
        """Return the next transmission, of at most `capacity` bytes, or None. Mark its Packages as
        in flight.

        Entries other than an SOS fill at most `ordinary_bytes` bytes, or the rest of a credit that
        an SOS has begun. So credits that are kept for an SOS never pay for them.
        """
        repeat = piggyback.find_next_repeat(is_busy=self._is_busy(now))
        if repeat is not None:
            return self._pack_repeat(repeat, capacity, piggyback)
        segments: list[Segment] = []
        passed_over: list[int] = []
        draft, origin, tries, alone = self._make_draft(0), 0, 0, False
        while len(segments) + len(passed_over) <= self._limits.companions:
            key = self.queue.pop_due(now, includes_bursts=not segments and not passed_over)
            if key is None:
                break
            try:
                candidate = self._choose_next(key)
            except DamagedPackage as damaged:
                log.error("%s: it ends as Error and stays in the list; post it again", damaged)
                self.queue.finish(key, DAMAGED_DELIVERY)
                continue
            except TooLarge as error:
                self.queue.finish(key, ChannelDelivery(Status.ERROR, f"too large: {error}"))
                continue
            is_urgent = self.queue.is_urgent(key)
            if alone and not is_urgent:
                passed_over.append(key)
                break
            # In a message with the kit's own SOS, an SOS of others uses only the ordinary budget.
            own = is_urgent and not (segments and self.queue.is_sos_of_others(key))
            fill_limit = (
                capacity if own else self._compute_fill_limit(draft, capacity, ordinary_bytes)
            )
            if segments:
                fits = self._add_if_fitting(candidate, origin, draft, fill_limit)
            else:
                fits = not candidate.undated and len(candidate.body) <= fill_limit
            if not fits:
                passed_over.append(key)
                if not segments:
                    break
                continue
            if not segments:
                draft = self._begin_draft(candidate, capacity)
                origin, tries = candidate.origin, candidate.attempts
                alone = is_urgent and self._is_sent_alone(tries)
            segments.append(candidate.segment)
            if candidate.segment.count > 1:
                self.queue.bursts.start_segment(
                    candidate.segment, self._choose_positions(candidate.segment, candidate.attempts)
                )
            if candidate.segment.count > 1 or key in self.queue.alone:
                break
        for key in passed_over:
            self.queue.requeue_unfitting(key)
        if segments and segments[0].count > 1:
            self._add_end_mark(
                draft, capacity, len(self.queue.bursts[segments[0].sequence].waiting)
            )
        # Add none of this kit's entries to a neighbour's item, because the envelope has the
        # neighbour's number as the origin of all entries.
        fill_limit = self._compute_fill_limit(draft, capacity, ordinary_bytes)
        piggybacked = (
            PiggybackEntries()
            if alone or (segments and origin)
            else piggyback.fill(draft, fill_limit)
        )
        if not draft.entries:
            return None
        # If more fragments of the Package wait, they follow immediately, before other Packages.
        has_more = any(self.queue.bursts[p.sequence].waiting for p in segments if p.count > 1)
        return PackedTransmission(draft.body, segments, piggybacked, tries, has_more)

    def _is_sent_alone(self, tries: int) -> bool:
        """Return True if an SOS is sent alone: on a paid channel, in the first attempts, because a
        short message is more likely to arrive.
        """
        return self._limits.tariff.compute_units(1) > 0 and tries < SOS_ALONE_TRIES

    def _add_end_mark(self, draft: Draft, capacity: int, follow: int) -> None:
        """Add the number of fragments that follow in this round (`follow`). After these fragments,
        the receivers answer. The last few fragments all contain this number, because any of them
        may be lost.
        """
        if self._station and follow < WINDOW:
            draft.add(Entry(0, Source(self._station, follow)), capacity)

    def _is_busy(self, now: float) -> bool | None:
        """Return True if a Package waits to be sent, None if that Package is an SOS, and False if
        no Package waits.
        """
        foremost = self.queue.find_foremost(now)
        if foremost is None:
            return False
        return None if self.queue.is_urgent(foremost) else True

    def _pack_repeat(
        self, repeat: RepeatedPacket, capacity: int, piggyback: Piggyback
    ) -> PackedTransmission | None:
        """Pack a repeated item. The list of stations that are missing the item is added completely
        or not at all, because unlisted stations do not answer. The relay request is left out if it
        does not fit, because the item's sender has already sent the request.
        """
        if repeat.joins:
            return self._pack_repeats(repeat, capacity, piggyback)
        whole = [*repeat.entries]
        without_request = [each for each in whole if not isinstance(each.content, RelayRequest)]
        for entries in ([*whole, *repeat.optional_entries], whole, without_request):
            draft = self._make_draft(repeat.origin)
            body = draft.encode_with(*entries)
            if len(body) <= capacity:
                return PackedTransmission(
                    body,
                    [],
                    PiggybackEntries(),
                    urgent=repeat.sos,
                    is_of_others=repeat.origin != self._station,
                )
        log.error("number %d is too large to be repeated", repeat.entries[0].sequence)
        return None

    def _pack_repeats(
        self, first: RepeatedPacket, capacity: int, piggyback: Piggyback
    ) -> PackedTransmission | None:
        """Pack as many repeated items as fit, from any stations, but at least one. A single item
        fits, because it fitted into a packet when it was first sent.
        """
        draft, body = self._make_draft(0), b""
        author: AuthorMark | None = None
        entries: list[Entry] = []
        other: RepeatedPacket | None = first
        while other is not None:
            mark = AuthorMark(other.origin, other.hops)
            # The mark has the item's time, because times in an envelope are relative to the time of
            # its first entry.
            head = [] if author == mark else [Entry(0, mark, other.entries[0].time)]
            combined = [*entries, *head, *other.entries]
            longer = draft.encode_with(*combined)
            if body and len(longer) > capacity:
                break
            if other is not first:
                piggyback.mark_joined(other)
            entries, body, author = combined, longer, mark
            other = piggyback.find_joining()
        return PackedTransmission(body, [], PiggybackEntries()) if len(body) <= capacity else None

    def _begin_draft(self, part: _NextPart, capacity: int) -> Draft:
        draft = self._make_draft(part.origin)
        draft.begin(part.entry, part.body)
        if part.marks:
            paid_bytes = self._limits.tariff.compute_paid_size(len(draft))
            draft.add_all(part.marks, min(capacity, paid_bytes))
        return draft

    def _add_if_fitting(
        self, candidate: _NextPart, sequence_owner: int, draft: Draft, capacity: int
    ) -> bool:
        """Add the candidate to the draft if it is a complete item of the same sender and fits
        within the fill limit. Return True if it was added.
        """
        lone = candidate.segment.sequence in self.queue.alone or candidate.origin != sequence_owner
        if candidate.undated or candidate.segment.count > 1 or lone:
            return False
        limit = min(capacity, self._limits.fill, self.capacity.compute_filled(draft.origin))
        return draft.add_all([candidate.entry, *candidate.marks], limit) or draft.add(
            candidate.entry, limit
        )

    def _make_draft(self, origin: int) -> Draft:
        return Draft(
            origin or self._station,
            self._key,
            is_sealed=self._sealed,
            is_packed=self._limits.packs_text,
        )

    def _choose_next(self, sequence: int) -> _NextPart:
        if self._prepared is not None and self._prepared.segment.sequence == sequence:
            return self._prepared
        package, tries = outbound.read_to_send(self._journal, self._channel, sequence)
        entry, *marks = make_marked_entries(package)
        entry_bytes = encode([entry], is_packed=self._limits.packs_text)
        draft = self._make_draft(package.origin)
        if len(entry_bytes) <= self.capacity.compute_whole(draft.origin):
            needs_no_route = self._key is None and not (package.origin or self._station)
            body = entry_bytes if needs_no_route else draft.encode_with(entry)
            self._prepared = _NextPart(
                Segment(sequence),
                package.origin,
                entry,
                body,
                tries,
                package.undated,
                () if self._limits.shared else tuple(marks),
            )
            return self._prepared
        fragments = self.capacity.cut_into_fragments(entry, draft.origin)
        segment = Segment(sequence, 0, len(fragments))
        index = self._choose_positions(segment, tries)[0]
        entry = Entry(entry.sequence, fragments[index])
        segment, body = replace(segment, position=index), draft.encode_with(entry)
        return _NextPart(segment, package.origin, entry, body, tries, package.undated)

    def _choose_positions(self, segment: Segment, tries: int) -> list[int]:
        """Return the positions of the next fragments to send. Return several positions only if a
        station is known to listen.
        """
        if segment.sequence in self.queue.bursts:
            return self.queue.bursts[segment.sequence].waiting
        held_positions = outbound.read_held_fragments(
            self._journal, self._channel, segment.sequence, segment.count
        )
        together = 1
        if self.acks is not None and self.acks.is_somebody_listening():
            # After an unanswered round, send only a few, so that stations soon answer which
            # fragments have arrived.
            together = WINDOW if tries else ROUND_FRAGMENTS_MAX
        elif self.acks is not None and held_positions:
            together = WINDOW
        # Start each attempt with a different fragment. This helps if the stations that have the
        # earlier fragments are now out of range.
        turn = tries if self._limits.shared else 0
        # If no fragment is missing, the end of the Package was not stored. Send one fragment, so
        # that a station that has all fragments confirms the Package again.
        return find_missing_fragments(segment.count, held_positions.values(), turn)[:together] or [
            0
        ]

    def encode_alone(self, entry: Entry) -> bytes:
        """Return a packet with only this entry. The packet is tagged, but not encrypted."""
        return encode([entry], origin=self._station, key=self._key)

    def split_into_parts(self, entry: Entry, origin: int) -> list[Entry]:
        """Return the entry, or its fragments if necessary; empty if it is too large."""
        try:
            return self._split_into_parts(entry, origin)
        except TooLarge:
            return []

    def _split_into_parts(self, entry: Entry, origin: int) -> list[Entry]:
        """Return the parts as `split_into_parts` does. Raises TooLarge if the entry is too large.
        Text in fragments is not packed, because a later version may pack it differently, and the
        fragments would not match.
        """
        if len(encode([entry], is_packed=self._limits.packs_text)) <= self.capacity.compute_whole(
            origin
        ):
            return [entry]
        return [
            Entry(entry.sequence, part) for part in self.capacity.cut_into_fragments(entry, origin)
        ]

    def list_sizes(self, package: Package, now: float) -> list[int]:
        """Return the size in bytes of each transmission for the Package if it is sent alone. Raises
        TooLarge.
        """
        entry = make_numbered_entry(outbound.compute_next_sequence(self._journal), package, now)
        draft = self._make_draft(0)
        return [
            len(draft.encode_with(part)) for part in self._split_into_parts(entry, draft.origin)
        ]

    def _compute_fill_limit(self, draft: Draft, capacity: int, ordinary_bytes: int) -> int:
        """Return the bytes up to which entries that are not an SOS may fill the draft."""
        return min(capacity, max(ordinary_bytes, self._limits.tariff.compute_paid_size(len(draft))))
