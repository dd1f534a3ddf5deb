"""Does what follows from a packet that was heard: acknowledges it, brings our own items on,
relays."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import trio

from fieldagent.agent.channels.air_pace import AirTurn
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import EndedLeg
from fieldagent.agent.mesh.packet import Packet, PacketReception
from fieldagent.agent.mesh.rounds import (
    FOR_PRESENT,
    FOR_RETURNED,
    KEPT,
    OnItsWay,
    Rounds,
    goes_round,
)
from fieldagent.agent.mesh.troubles import Trouble
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.packing import Packing
from fieldagent.agent.outbound.piggyback import RadioPiggyback
from fieldagent.package.delivery import Leg
from fieldagent.package.package import Item, Status
from fieldagent.wire.envelope import Ack, Envelope, Fragment, Introduction, Source, digest_of

log = logging.getLogger(__name__)


class RadioReception:
    """Implements `channels.radio_modem.AirReception`. What others say on the air costs nothing, and
    books nothing."""

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

    async def receive(
        self, body: bytes, *, damage: str = "", rssi: int | None = None, snr: int | None = None
    ) -> AirTurn:
        envelope = None if damage else self._packets.read(body)
        if envelope is None:
            return AirTurn(crowd=len(self._neighbours.in_earshot()))
        acks = await self._take_in(envelope, rssi, snr)
        return AirTurn(_follow(envelope, acks), len(self._neighbours.in_earshot()))

    async def _take_in(
        self, envelope: Envelope, rssi: int | None, snr: int | None
    ) -> dict[int, Ack]:
        """What is to be acknowledged of it, by its number."""
        now = self._endings.clock()
        packet = await self._journal.persist(lambda db: self._packets.store(db, envelope, now))
        self._packets.stored(packet)
        if packet.namesake:
            self._meet_namesake(packet)
            return {}
        if packet.sender == self._station:
            return {}
        returned = self._neighbours.note(packet.sender, rssi, snr, envelope.key)
        presents = False
        for entry in envelope.entries:
            if isinstance(entry.content, Introduction) and entry.sequence == 0:
                self._neighbours.note_callsign(packet.sender, entry.content.identity.name)
            elif isinstance(entry.content, Introduction):
                presents |= entry.sequence == packet.sender
        if self._packing.acks is not None:
            self._packing.acks.note_heard()
        if packet.sender == packet.station:
            self._note_hub(envelope, packet)
        await self._follow_up(packet)
        self._go_round(packet)
        if returned:
            log.info("station %d is in earshot", packet.sender)
            self._piggyback.introduce()
        if returned or presents:
            more = FOR_RETURNED if returned else FOR_PRESENT
            self._rounds.welcome(packet.sender, trio.current_time(), more=more)
            # What waits for its next try need not wait.
            self._queue.hasten(*self._queue.waiting())
        if packet.acks:
            self._queue.wake()
        return dict(packet.acks)

    def _note_hub(self, envelope: Envelope, packet: Packet) -> None:
        """Whether its sender reaches the hub: one that does asks nobody to bring its items."""
        contents = [entry.content for entry in envelope.entries]
        acks = any(isinstance(each, Ack) and each.by_hub for each in contents)
        items = any(isinstance(each, Item | Fragment) for each in contents) and not packet.lacking
        if packet.relay or acks or items:
            before = self._neighbours.reaches_hub()
            self._neighbours.note_hub(packet.station, reached=not packet.relay)
            if self._neighbours.reaches_hub() - before:
                self._rounds.note_hub(trio.current_time())

    def _go_round(self, packet: Packet) -> None:
        """What is in it may have to reach those who did not hear it."""
        now = trio.current_time()
        for sequence, ack in (*packet.heard, *packet.overheard):
            by = packet.sender if packet.is_echo else packet.station
            self._rounds.note_ack(sequence, ack, by, now)
        for entry in packet.items:
            parts = self._packing.parts(entry, packet.station)
            asked = bool(parts) and (entry.sos or packet.relay)
            if not asked and not goes_round(len(parts), self._packing.room.size):
                continue
            item = OnItsWay(
                packet.station,
                entry,
                parts,
                now + KEPT,
                asks=packet.relay,
                hops=packet.hops,
                has={packet.sender},
            )
            self._rounds.add(item, now)
        # Who repeats looks at it.
        self._queue.wake()

    def _meet_namesake(self, packet: Packet) -> None:
        if not self._troubles.is_lately(Trouble.NAMESAKE):
            # It may never have heard us: by our name it knows of us too.
            self._piggyback.introduce(at_once=True)
            self._queue.wake()
        self._troubles.note(Trouble.NAMESAKE)

    async def _follow_up(self, packet: Packet) -> None:
        """All of it is on disk."""
        for accepted in packet.relayed:
            self._intake.queue_relayed(accepted)
        if not self._troubles.is_lately(Trouble.NAMESAKE):
            if packet.reads_several and packet.sender == packet.station:
                self._piggyback.holdings.note_reader(packet.station)
            here = [(each.sequence, digest_of(each)) for each in packet.items if not each.sos]
            self._piggyback.holdings.note(packet.station, here)
            urgent = {entry.sequence for entry in packet.items if entry.sos}
            for sequence, ack in packet.acks:
                # Who sends a round waits for its answer.
                twice = sequence in packet.again
                patient = ack.whole and sequence not in urgent and not (ack.by_hub or twice)
                alone = sequence in packet.repeated
                self._piggyback.acknowledge(
                    sequence, ack, patient=patient, twice=twice, alone=alone
                )
        for sequence, ack in packet.overheard:
            self._piggyback.overhear(sequence, ack)
        for sequence, ack in packet.heard:
            await hear(self._packing, self._endings, sequence, ack)


def _follow(envelope: Envelope, acks: Mapping[int, Ack]) -> int:
    """How many fragments its sender may add at once: as many as it says, or else those that lack
    here behind this one."""
    for entry in envelope.entries:
        says = entry.content
        if isinstance(says, Source) and (entry.sequence, says.station) == (0, envelope.origin):
            return says.sequence
    parts = [each for each in envelope.entries if isinstance(each.content, Fragment)]
    return sum(
        index not in acks[entry.sequence].arrived
        for entry in parts
        if isinstance(entry.content, Fragment) and entry.sequence in acks
        for index in range(entry.content.index, entry.content.count)
    )


async def hear(packing: Packing, endings: Endings, sequence: int, ack: Ack) -> None:
    """A station has said what it has of our own Package, and the journal knows it."""
    queue = packing.queue
    assert packing.acks is not None, "on the air each transmission awaits its acknowledgement"
    if packing.acks.hear(sequence, ack) or not ack.whole or sequence not in queue:
        return
    # It came when nobody waited for it any more.
    ended = EndedLeg(sequence, queue.channel, Leg(Status.DELIVERED))
    await endings.record([ended])
    queue.finish(sequence, arrived=True)
    queue.wake()
