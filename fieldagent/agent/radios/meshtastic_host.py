"""Host of a Meshtastic radio, for any use. The host greets the radio, keeps it awake, passes it
packets and receives the results.

    without a `my_info` a device is not considered a radio, whatever else is received
    queueStatus   shows if a packet waits for the air, but not if it left
    ROUTING       from the receiver: its radio has it; from our radio: it was repeated, or failed
    silence       the result is unknown

A radio reports its restart. It has then forgotten its host, so the host greets the radio again.
"""

from __future__ import annotations

import logging
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import field
from math import inf
from typing import NoReturn

import trio

from fieldagent.agent.channels.radio_modem import RadioLost
from fieldagent.agent.radios.radio_line import RadioLine, is_serial, open_line
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import EventRate
from fieldagent.wire import meshtastic as wire
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.meshtastic import (
    FromRadio,
    Heartbeat,
    LoraConfig,
    MeshChannel,
    MeshPacket,
    NodeInfo,
    Port,
    QueueError,
    QueueStatus,
    RoutingError,
    ToRadio,
)

log = logging.getLogger(__name__)

HANDSHAKE_MAX, HANDSHAKES = 60.0, 2
"""Longest time in seconds until a radio has sent its full configuration, and the number of
attempts."""
HEARTBEAT_INTERVAL_S = 300.0
"""Seconds between heartbeats. A radio forgets a host that is silent for three times as long."""
ANSWER_TIMEOUT_S = 10.0
"""Longest time in seconds for a radio's report that a packet waits, or for the radio's answer to a
heartbeat."""
ROUTING_TIMEOUT_S = 60.0
"""Longest time in seconds until a radio has ended its three attempts and reports the result."""
LULL_S = 2.0
"""Seconds of silence within a frame after which the rest of the frame is considered lost."""
HEARD_MAX = 256
"""Maximum number of waiting packets, not counting texts."""
NODES_MAX = 5_000
"""Maximum number of nodes whose entries wait. A large mesh has some hundred nodes."""
KEPT_FREE, FREE_QUEUE_PLACES = 4, 1
"""Smallest number of free places in the radio's queue with which we send a packet: first for most
packets, then for an SOS. The radio needs free places for packets that it repeats for other
nodes."""
QUEUE_FULL_MAX_S = 10.0
"""Longest wait in seconds until a full queue is queried again."""


class HostReception(NamedTuple):
    """A received packet, or the radio's record of a node."""

    packet: MeshPacket | None = None
    node: NodeInfo | None = None


class RoutingVerdict(NamedTuple):
    """Result of a packet that requests an acknowledgement."""

    error: int | None
    """A RoutingError, or None if no report came."""
    by: int = 0
    """Node that sent the report."""


TEXT_BY_QUEUE_ERROR: dict[int, str] = {
    QueueError.FULL: "the radio's queue is full",
    QueueError.NO_CHIP: "the radio has no LoRa chip",
    QueueError.OFF: "no region is set on the radio, or its transmitter is off: nothing is"
    " transmitted",
    QueueError.LOCALLY: "it is for the radio itself",
}
"""Texts for people, by result. For other results, the text of the RoutingError is used."""
TEXT_BY_ROUTING_ERROR: dict[int | None, str] = {
    None: "the radio did not report it",
    RoutingError.NONE: "a radio has it",
    RoutingError.NO_ROUTE: "there is no route to the receiver",
    RoutingError.TIMEOUT: "no answer",
    RoutingError.MAX_RETRANSMIT: "no acknowledgement",
    RoutingError.NO_CHANNEL: "the receiver does not have the channel",
    RoutingError.TOO_LARGE: "it is too large for the radio",
    RoutingError.DUTY_CYCLE_LIMIT: "the radio's air-time of this hour is spent",
    RoutingError.RATE_LIMIT_EXCEEDED: "the radio accepts one text in two seconds",
    RoutingError.PKI_FAILED: "the receiver's key has changed",
    RoutingError.PKI_UNKNOWN_PUBKEY: "the receiver does not know this radio's key",
    RoutingError.PKI_SEND_FAIL_PUBLIC_KEY: "the radio does not know the receiver's key yet",
}


def _describe_value(error: int | None) -> str:
    return TEXT_BY_ROUTING_ERROR.get(error, f"the radio reports error {error}")


class PacketOutcome(NamedTuple):
    """Known facts about the result of a packet that was passed to the radio."""

    queued: int | None
    """A `QueueError`, or a RoutingError that refuses the packet. None if the radio did not report,
    for example because it already had the packet."""
    verdict: RoutingVerdict

    @property
    def is_received(self) -> bool:
        """Return True if another node confirms that it has the packet."""
        return not self.queued and self.verdict.error == RoutingError.NONE

    def describe_fate(self) -> str:
        """Return the result as a text for people."""
        if self.queued:
            return TEXT_BY_QUEUE_ERROR.get(self.queued) or _describe_value(self.queued)
        return _describe_value(self.verdict.error)


@dataclass(slots=True)
class RadioFacts:
    """Facts that a radio has reported about itself."""

    number: int = 0
    """Number of the radio's own node. 0 until known."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    channels: dict[int, MeshChannel] = field(default_factory=dict)
    firmware: str = ""
    queue: QueueStatus = field(default_factory=lambda: QueueStatus(free=16, maximum=16))

    def store_fact(self, message: FromRadio) -> None:
        """Store the fact that a message contains: node number, channel, LoRa settings, firmware
        version or queue status. Ignore other messages.
        """
        if message.my_info is not None:
            self.number = message.my_info.number
        elif message.channel is not None:
            self.channels[message.channel.place] = message.channel
        elif message.config is not None and message.config.lora is not None:
            self.lora = message.config.lora
        elif message.metadata is not None:
            self.firmware = message.metadata.firmware
        elif message.queue_status is not None:
            self.queue = message.queue_status

    def describe_trouble(self) -> str:
        """Return the reason, for people, why the radio cannot transmit, or '' if the radio can
        transmit.
        """
        if not self.lora.region:
            return "no region is set on the radio, so it transmits nothing: set it with its app"
        if not self.lora.transmits:
            return "the radio's transmitter is off: turn it on with its app"
        return ""


class _PacketReports:
    """Reports of the radio on packets whose senders wait for the result."""

    def __init__(self) -> None:
        self.awaited: set[int] = set()
        self.statuses: dict[int, int] = {}
        self.verdicts: dict[int, RoutingVerdict] = {}
        self.told = trio.Event()
        """Event that is set when the radio has answered. A new event then replaces it."""

    def notify_waiters(self) -> None:
        self.told.set()
        self.told = trio.Event()

    def forget(self, number: int) -> None:
        self.awaited.discard(number)
        self.statuses.pop(number, None)
        self.verdicts.pop(number, None)

    async def wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        with waits.move_on_after(seconds):
            while not condition():
                await self.told.wait()


class _ReceivedPackets:
    """Packets that wait to be read, in their order. If there are several entries about one node,
    only the newest is kept. Texts are never dropped, because a text may be an SOS.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, HostReception] = OrderedDict()
        self._others = 0
        """Number of waiting packets that are not texts."""
        self._news = trio.Event()
        self._lost_rate = EventRate(trio.current_time)

    def add(self, packet: HostReception) -> None:
        """Add a packet or a node's entry to the queue."""
        key: Hashable = object()
        if packet.node is not None:
            key = packet.node.number
            if key not in self._entries and len(self._entries) >= NODES_MAX:
                self._count_lost()
                return
        elif not _is_text(packet):
            if self._others >= HEARD_MAX:
                self._count_lost()
                return
            self._others += 1
        self._entries[key] = packet
        self._news.set()

    async def wait_for_next(self) -> HostReception:
        """Return the next packet. A packet that already waits is returned at once, without a trio
        checkpoint.
        """
        while not self._entries:
            self._news = trio.Event()
            await self._news.wait()
        _, packet = self._entries.popitem(last=False)
        self._others -= packet.node is None and not _is_text(packet)
        return packet

    def _count_lost(self) -> None:
        if count := self._lost_rate.count_event():
            log.warning("%d packets were lost: more arrive than can be stored", count)


def _is_text(heard: HostReception) -> bool:
    packet = heard.packet
    decoded = None if packet is None else packet.decoded
    return decoded is not None and decoded.port in (Port.TEXT, Port.ALERT)


class MeshtasticHost:
    """Host of one radio. `listen` must be running while other methods are used. Some methods raise
    RadioLost and PortLost.
    """

    def __init__(self, line: RadioLine, *, wants_nodes: bool) -> None:
        self._line = line
        self._nonce = 0
        self._wants_nodes = wants_nodes
        self._deframer = wire.Deframer()
        self.facts = RadioFacts()
        self._received = _ReceivedPackets()
        self._complete = trio.Event()
        self._rebooted = trio.Event()
        self._answers = _PacketReports()
        self._giving = trio.Lock()

    async def receive(self) -> HostReception:
        """Return the next received message. Messages that already arrived are returned even if the
        line is lost, because the radio sends each message only once.
        """
        return await self._received.wait_for_next()

    async def listen(self) -> NoReturn:
        """Read messages from the radio and pass them to the waiting tasks, forever. A message that
        cannot be read is skipped. Raises the line's errors.
        """
        while True:
            with waits.move_on_after(LULL_S if self._deframer.is_within else inf) as lull:
                data = await self._line.read()
            if lull.cancelled_caught:
                self._deframer.discard_incomplete()
                continue
            for message in self._deframer.receive_data(data):
                try:
                    self._process_message(wire.decode_from_radio(message))
                except RemoteProtocolError as error:
                    log.debug("the radio sent unreadable data: %s", error)

    def _process_message(self, message: FromRadio) -> None:
        self.facts.store_fact(message)
        if message.config_complete is not None:
            if message.config_complete == self._nonce:
                self._complete.set()
        elif message.rebooted:
            self._rebooted.set()
        elif message.notification is not None:
            log.warning("the radio reports: %s", message.notification.message)
        elif message.queue_status is not None:
            status = message.queue_status
            if status.packet_id in self._answers.awaited:
                self._answers.statuses[status.packet_id] = status.result
            self._answers.notify_waiters()
        elif message.packet is not None:
            self._process_packet(message.packet)
        elif message.node_info is not None:
            self._received.add(HostReception(node=message.node_info))

    def _process_packet(self, packet: MeshPacket) -> None:
        answer = wire.decode_answer(packet)
        if answer is None:
            self._received.add(HostReception(packet))
        elif answer[0] in self._answers.awaited:
            self._answers.verdicts[answer[0]] = RoutingVerdict(answer[1], packet.source)
            self._answers.notify_waiters()

    async def request_configuration(self) -> None:
        """Request the radio's identity and configuration. Raises RadioLost."""
        for _ in range(HANDSHAKES):
            self._nonce = wire.WITHOUT_NODES_NONCE
            if self._wants_nodes:
                self._nonce = random.getrandbits(31) | 1
            self._complete, self._rebooted = trio.Event(), trio.Event()
            self.facts.number = 0
            await self._line.write(wire.encode_to_radio(ToRadio(want_config=self._nonce)))
            with waits.move_on_after(HANDSHAKE_MAX):
                await self._complete.wait()
                if self.facts.number:
                    return
        raise RadioLost(
            "the radio does not answer: check that it runs Meshtastic, that its serial"
            " interface is on, and that no app is connected to it"
        )

    async def maintain_settings(self) -> NoReturn:
        """Send heartbeats, and greet a radio that has restarted. Raises RadioLost."""
        while True:
            with waits.move_on_after(HEARTBEAT_INTERVAL_S):
                await self._rebooted.wait()
            if self._rebooted.is_set():
                log.warning("the radio has restarted: connecting again")
                await self.request_configuration()
            await self.send_heartbeat()

    async def send_heartbeat(self) -> None:
        """Send a heartbeat and wait for an answer. Raises RadioLost if the radio does not
        answer.
        """
        answers_told = self._answers.told
        await self._line.write(wire.encode_to_radio(ToRadio(heartbeat=Heartbeat())))
        with waits.move_on_after(ANSWER_TIMEOUT_S) as limit:
            await answers_told.wait()
        if limit.cancelled_caught and not self._rebooted.is_set():
            raise RadioLost("the radio does not answer any more")

    def make_number(self) -> int:
        """Return an id for a packet. The reports on the packet contain this id."""
        return random.getrandbits(32) or 1

    async def send_packet(self, packet: MeshPacket, *, urgent: bool = False) -> PacketOutcome:
        """Pass a packet to the radio, and wait for the radio's report. If the packet requests an
        acknowledgement, also wait for the result. Raises RadioLost.
        """
        answers = self._answers
        answers.awaited.add(packet.id)
        try:
            async with self._giving:
                await self._wait_for_room(urgent=urgent)
                await self._line.write(wire.encode_to_radio(ToRadio(packet=packet)))
                await answers.wait_until(lambda: packet.id in answers.statuses, ANSWER_TIMEOUT_S)
            queued = answers.statuses.get(packet.id)
            if queued or not packet.want_ack:
                return PacketOutcome(queued, RoutingVerdict(None))
            await answers.wait_until(lambda: packet.id in answers.verdicts, ROUTING_TIMEOUT_S)
            return PacketOutcome(queued, answers.verdicts.get(packet.id, RoutingVerdict(None)))
        finally:
            answers.forget(packet.id)

    async def _wait_for_room(self, *, urgent: bool) -> None:
        keep = FREE_QUEUE_PLACES if urgent else KEPT_FREE
        while self.facts.queue.free < keep:
            queue = self.facts.queue
            await waits.sleep(min(QUEUE_FULL_MAX_S, 1.0 + queue.maximum - queue.free))
            await self.send_heartbeat()


@asynccontextmanager
async def open_host(
    place: str, baud: int, *, wants_nodes: bool = True
) -> AsyncIterator[MeshtasticHost]:
    """Open a radio and act as its host. Raises RadioLost and PortLost, in exception groups."""
    async with open_line(place, baud, wire.TCP_PORT) as line:
        if is_serial(place):
            # These bytes wake a sleeping chip, and end a frame of which the chip has read only a
            # part.
            await line.write(wire.WAKE_BYTES)
            await trio.sleep(0.1)
        host = MeshtasticHost(line, wants_nodes=wants_nodes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host.listen)
            await host.request_configuration()
            nursery.start_soon(host.maintain_settings)
            yield host
            nursery.cancel_scope.cancel()
