"""Acts on a packet from the air: acknowledges its items, settles our own items, and relays."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import trio

from fieldagent.agent.channels.air_pace import AirTurn
from fieldagent.agent.journal.history import add_names
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import EndedDelivery
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.packing import Packing
from fieldagent.extensions.radio.mesh.duplicate_stations import DuplicateDetector
from fieldagent.extensions.radio.mesh.packet import Packet, PacketReception, split_by_origin
from fieldagent.extensions.radio.mesh.radio_piggyback import RadioPiggyback
from fieldagent.extensions.radio.mesh.rounds import (
    OTHERS_REPEAT_LIFETIME_S,
    RepeatableItem,
    Rounds,
    is_repeated,
)
from fieldagent.extensions.radio.mesh.troubles import Trouble
from fieldagent.package.delivery import ChannelDelivery, Stage
from fieldagent.package.package import Status
from fieldagent.wire.envelope import (
    Ack,
    Envelope,
    Fragment,
    Introduction,
    Program,
    Receipt,
    Source,
    Unreadable,
)

log = logging.getLogger(__name__)

CATCH_UP_S = 35.0
"""Seconds for which hooks receive only SOS items, after this kit hears a station and no station was
in range before. Stations that have an SOS send it first, as soon as they receive this kit's hello.
The hello leaves at most 20 s after the start."""


class RadioReception:
    """Implements `channels.radio_modem.AirReception`. Packets from the air cost no credits."""

    def __init__(
        self,
        journal: Journal,
        packets: PacketReception,
        packing: Packing,
        piggyback: RadioPiggyback,
        intake: Intake,
        endings: Endings,
        rounds: Rounds,
    ) -> None:
        self._station = packets.station
        self._rounds = rounds
        self._journal = journal
        self._packets = packets
        self._neighbours = rounds.neighbours
        self._packing = packing
        self._queue = packing.queue
        self._piggyback = piggyback
        self._intake = intake
        self._endings = endings
        self._troubles = packets.troubles
        self._duplicates = DuplicateDetector()

    async def receive(
        self,
        body: bytes,
        *,
        damage: str = "",
        unreadable_message: Unreadable | None = None,
        rssi: int | None = None,
        snr: int | None = None,
    ) -> AirTurn:
        """Process one packet, as `AirReception` defines. `unreadable_message` is not sent to the
        peer, because on the air a packet is repeated until it is acknowledged.
        """
        envelope = None if damage else self._packets.read(body)
        if envelope is None:
            return AirTurn(stations_in_range=len(self._neighbours.list_in_range()))
        acks: dict[int, Ack] = {}
        for part in split_by_origin(envelope):
            acks |= await self._store_sender_entries(part, rssi, snr)
        crowd = len(self._neighbours.list_in_range())
        return AirTurn(_compute_more_fragments(envelope, acks), crowd, is_from_known_station=True)

    async def _store_sender_entries(
        self, envelope: Envelope, rssi: int | None, snr: int | None
    ) -> dict[int, Ack]:
        """Store the entries of one sender, and return their acknowledgements by item number."""
        now = self._endings.clock()
        if not self._neighbours.list_in_range():
            self._packets.catching_up_until = now + CATCH_UP_S
        packet = await self._journal.persist(lambda db: self._packets.store(db, envelope, now))
        self._packets.mark_stored(packet)
        if packet.namesake:
            self._report_duplicate_number()
            self._add_stored_items(packet)
            self._process_summaries(packet)
            return {}
        if packet.sender == self._station:
            return {}
        returned = self._neighbours.record_packet(packet.sender, rssi, snr, envelope.key)
        presents = False
        for entry in envelope.entries:
            if isinstance(entry.content, Introduction) and entry.sequence == 0:
                self._neighbours.record_callsign(packet.sender, entry.content.identity.name)
            elif isinstance(entry.content, Program) and packet.sender == packet.station:
                self._neighbours.known[packet.sender].version = entry.content.version
            elif isinstance(entry.content, Introduction):
                presents |= entry.sequence == packet.sender
        if self._packing.acks is not None:
            self._packing.acks.record_heard_station()
        self._piggyback.summaries.set_crowd(len(self._neighbours.list_in_range()))
        self._record_route(packet)
        self._check_duplicate_numbers(envelope, packet)
        await self._follow_up(packet)
        self._run_round(packet)
        self._process_receipts(packet, now)
        if returned:
            log.info("station %d is in range", packet.sender)
            # Answer a hello at once with our name, unless an acknowledgement is sent. An
            # acknowledgement also shows that we are in range.
            self._piggyback.introduce(is_immediate=presents and not packet.acks)
        if returned or presents:
            self._rounds.schedule_sos_for_station(packet.sender, trio.current_time())
            self._piggyback.repeat_for_returned_station(crowd=len(self._neighbours.list_in_range()))
            self._piggyback.readings.repeat_for_returned_station(packet.sender, now)
            # The station can hear us now, so retry waiting Packages at once.
            self._queue.hasten(*self._queue.list_waiting())
        if packet.acks:
            self._queue.wake()
        return dict(packet.acks)

    def _process_receipts(self, packet: Packet, now: float) -> None:
        """Answer receipts for our items, and pass on receipts of other stations."""
        readings, crowd = self._piggyback.readings, len(self._neighbours.list_in_range())
        if packet.is_answer:
            self._piggyback.load_entries()
        for entry, is_receipt_wanted in packet.receipts:
            readings.answer(packet.station, entry, now, is_answer_asked=is_receipt_wanted)
        for entry in packet.others_receipts:
            receipt = entry.content
            assert isinstance(receipt, Receipt)
            arrival = packet.station, entry, packet.sender, packet.hops, now
            if receipt.stage is Stage.STORED:
                readings.process_answer(*arrival, crowd=crowd)
            elif receipt.by != packet.station:
                is_receipt_wanted = self._rounds.is_asked(
                    receipt.by, entry.sequence, receipt.digest
                )
                readings.process_receipt(*arrival, crowd=crowd, is_answer_asked=is_receipt_wanted)
        if packet.receipts or packet.others_receipts:
            self._queue.wake()

    def _record_route(self, packet: Packet) -> None:
        if packet.route is not None and self._piggyback.hub_routes.record_route(
            packet.sender, packet.route
        ):
            self._rounds.schedule_for_route(trio.current_time())

    def _check_duplicate_numbers(self, envelope: Envelope, packet: Packet) -> None:
        """Check for two kits with one number. Only new items and names in packets that arrive
        directly from the station are used.
        """
        station = packet.station
        if packet.sender != station:
            return
        columns: list[int | str] = [
            entry.sequence for entry in packet.items if entry.sequence not in packet.repeated
        ]
        for entry in envelope.entries:
            if isinstance(entry.content, Introduction) and entry.sequence == station:
                columns.append(entry.content.identity.name)
        now = self._endings.clock()
        if [each for each in columns if self._duplicates.record_value(station, each, now)]:
            self._troubles.record(Trouble.DUPLICATE_STATION, f"station {station}")

    def _run_round(self, packet: Packet) -> None:
        """Add the packet's items to the rounds, which repeat items for stations that did not hear
        them.
        """
        now = trio.current_time()
        for sequence, ack in (*packet.heard, *packet.overheard_acks):
            speaker = packet.sender if packet.is_echo else packet.station
            self._rounds.record_ack(sequence, ack, speaker, now)
        self._process_summaries(packet)
        for entry in packet.items:
            parts = self._packing.split_into_parts(entry, packet.station)
            is_answer_asked = bool(parts) and (entry.sos or packet.relay)
            if not is_answer_asked and not is_repeated(len(parts), self._packing.capacity.size):
                continue
            item = RepeatableItem(
                packet.station,
                entry,
                parts,
                now + OTHERS_REPEAT_LIFETIME_S,
                is_for_hub=packet.relay,
                hops=packet.hops,
                confirmed_by={packet.sender},
            )
            self._rounds.add(item, now)
        # New items may be due earlier than the items for which the repeating task waits, so wake
        # the task.
        self._queue.wake()

    def _process_summaries(self, packet: Packet) -> None:
        """Repeat the items that the packet's sender is missing or requested."""
        for summary in packet.summaries:
            assert isinstance(summary.content, Ack)
            for number in self._piggyback.process_summary(summary):
                now = trio.current_time()
                self._rounds.record_missing(summary.content.station, number, packet.sender, now)

    def _add_stored_items(self, packet: Packet) -> None:
        """Add received items to our summary. If another kit has our station number, add none.
        Stations could not know which of the two kits has the items.
        """
        is_new_trouble = not self._troubles.is_recent(Trouble.NAMESAKE)
        for entry in packet.items:
            if not entry.sos and packet.station != self._station:
                self._piggyback.add_stored_item(packet.station, entry, is_listed=is_new_trouble)

    def _report_duplicate_number(self) -> None:
        if not self._troubles.is_recent(Trouble.NAMESAKE):
            # The other kit may never have heard us. Our name shows the other kit that two kits use
            # the number.
            self._piggyback.introduce(is_immediate=True)
            self._queue.wake()
        self._troubles.record(Trouble.NAMESAKE)

    async def _follow_up(self, packet: Packet) -> None:
        """Queue the relayed items of a packet that is on disk, and its acknowledgements."""
        for accepted in packet.relayed_items:
            self._intake.queue_relayed(accepted)
        self._add_stored_items(packet)
        if not self._troubles.is_recent(Trouble.NAMESAKE):
            crowd = len(self._neighbours.list_in_range())
            sos_sequences = {entry.sequence for entry in packet.items if entry.sos}
            for sequence, ack in packet.acks:
                # Send the answer at once, because the sender of a round waits for it.
                twice = sequence in packet.repeated_numbers
                together = (
                    ack.whole
                    and sequence not in sos_sequences
                    and not (ack.by_hub or ack.is_at_gateway or twice)
                )
                alone = sequence in packet.repeated
                self._piggyback.acknowledge(
                    sequence,
                    ack,
                    in_summary=together,
                    in_two_packets=twice,
                    is_alone=alone,
                    crowd=crowd,
                )
        for sequence, ack in packet.overheard_acks:
            self._piggyback.drop_covered_acknowledgement(sequence, ack)
        for sequence, text in packet.stopped:
            log.warning("number %d is not relayed: %s", sequence, add_names(self._journal, text))
        for sequence, ack in packet.heard:
            if await apply_ack(self._packing, self._endings, sequence, ack):
                # If this kit restarted after it had transmitted the item, `transmitted` does not
                # contain the item yet.
                self._piggyback.transmitted.add(sequence)
            if ack.by_hub:
                await self._endings.record_arrival_at_hub(sequence, is_proved=False)


def _compute_more_fragments(envelope: Envelope, acks: Mapping[int, Ack]) -> int:
    """Return the number of fragments that the sender may send directly after this packet. The
    sender usually announces this number. Otherwise it is the number of later fragments that this
    kit is missing.
    """
    for entry in envelope.entries:
        content = entry.content
        if isinstance(content, Source) and (entry.sequence, content.station) == (
            0,
            envelope.origin,
        ):
            return content.sequence
    parts = [each for each in envelope.entries if isinstance(each.content, Fragment)]
    return sum(
        index not in acks[entry.sequence].arrived
        for entry in parts
        if isinstance(entry.content, Fragment) and entry.sequence in acks
        for index in range(entry.content.index, entry.content.count)
    )


async def apply_ack(packing: Packing, endings: Endings, sequence: int, ack: Ack) -> bool:
    """Apply a station's acknowledgement of our Package, which is already in the journal. Return
    True if the acknowledgement ended a channel delivery for which no transmission was waiting.
    """
    queue = packing.queue
    assert packing.acks is not None, "on the air each transmission awaits its acknowledgement"
    if packing.acks.apply_ack(sequence, ack) or not ack.whole or sequence not in queue:
        return False
    ended_delivery = EndedDelivery(sequence, queue.channel, ChannelDelivery(Status.DELIVERED))
    await endings.record([ended_delivery])
    queue.finish(sequence, is_arrived=True)
    queue.wake()
    return True
