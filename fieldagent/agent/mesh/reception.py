"""Does what follows from a packet that was heard: acknowledges it, brings our own items on,
relays."""

from __future__ import annotations

import logging

from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import EndedLeg
from fieldagent.agent.mesh.neighbours import Neighbours
from fieldagent.agent.mesh.packet import Packet, PacketReception
from fieldagent.agent.mesh.troubles import Trouble
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.packing import Packing
from fieldagent.agent.outbound.piggyback import RadioPiggyback
from fieldagent.package.delivery import Leg
from fieldagent.package.package import Status
from fieldagent.wire.envelope import Ack

log = logging.getLogger(__name__)


class RadioReception:
    """Implements `channels.radio_modem.AirReception`. What others say on the air costs nothing, and
    books nothing."""

    def __init__(
        self,
        journal: Journal,
        packets: PacketReception,
        neighbours: Neighbours,
        packing: Packing,
        piggyback: RadioPiggyback,
        intake: Intake,
        endings: Endings,
    ) -> None:
        self._journal = journal
        self._packets = packets
        self._neighbours = neighbours
        self._packing = packing
        self._queue = packing.queue
        self._piggyback = piggyback
        self._intake = intake
        self._endings = endings
        self._troubles = packets.troubles

    async def receive(
        self, body: bytes, *, damage: str = "", rssi: int | None = None, snr: int | None = None
    ) -> None:
        envelope = None if damage else self._packets.read(body)
        if envelope is None:
            return
        now = self._endings.clock()
        packet = await self._journal.persist(lambda db: self._packets.store(db, envelope, now))
        self._packets.stored(packet)
        if packet.namesake:
            self._meet_namesake(packet)
            return
        if packet.is_echo:
            return
        returned = self._neighbours.note(packet.station, rssi, snr)
        if packet.relay or any(ack.by_hub for _, ack in (*packet.heard, *packet.overheard)):
            self._neighbours.note_hub(packet.station, reached=not packet.relay)
        await self._follow_up(packet)
        if returned:
            log.info("station %d is in earshot", packet.station)
            self._piggyback.introduce()
            # What waits for its next try need not wait.
            self._queue.hasten(*self._queue.waiting())
        if packet.acks:
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
            for sequence, ack in packet.acks:
                self._piggyback.acknowledge(sequence, ack)
        for sequence, ack in packet.overheard:
            self._piggyback.overhear(sequence, ack)
        for sequence, ack in packet.heard:
            await hear(self._packing, self._endings, sequence, ack)


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
