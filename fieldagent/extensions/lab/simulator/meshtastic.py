"""A radio with Meshtastic firmware, as its host and other radios see it. No I/O.

The host gets the same reports as from the firmware. A report shows that a packet waits
(queueStatus), that another radio has it (ROUTING from that radio), or that another radio repeats it
(ROUTING from this radio). If there is no report, the packet may be lost. On the air, a packet has
the firmware's header of 16 bytes. A stream of SHA-256 with the same length replaces the firmware's
AES encryption. Without the key, a simulated packet cannot be decoded either.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from hashlib import sha256
from math import inf
from random import Random

from fieldagent.extensions.lab.simulator.air import SharedAir
from fieldagent.extensions.lab.simulator.lora import RSSI, SNR, LoraBoard
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import meshtastic as wire
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.lora import compute_air_time
from fieldagent.wire.meshtastic import (
    BROADCAST,
    ChannelSettings,
    Config,
    DeviceMetrics,
    FromRadio,
    LoraConfig,
    MeshChannel,
    MeshData,
    MeshPacket,
    Metadata,
    MyInfo,
    NodeInfo,
    Notification,
    Port,
    QueueError,
    QueueStatus,
    Role,
    Routing,
    RoutingError,
    User,
)

FIRST_NUMBER = 0xFA9E_0000
"""Base of node numbers. The number of node 1 is this base plus one."""
FIRMWARE = "2.7.11.simulated"
QUEUE_MAX = 16
"""Largest number of packets that wait for the channel. The radio refuses further packets."""
STORED_PACKETS_MAX = 32
"""Largest number of packets that wait for a host. If there are more, a packet without a text is
dropped, and a text replaces the oldest packet."""
RECENT_IDS, SEEN_IDS_MAX = 20, 200
"""Number of recent ids from the host, and number of recent packets from the air. From these, a
radio recognises duplicates."""
TRANSMISSIONS_MAX = 3
ACK_WAIT_S = 4.5
"""Seconds, in addition to the airtime, after which an unacknowledged packet is sent again."""
CONTENTION_DELAY_S = (0.1, 0.4)
"""Shortest and longest random delay in seconds before a radio repeats a packet. In this time, an
acknowledgement can be sent first. If a radio hears that another radio repeats the packet, it does
not repeat the packet."""
KEY_BYTES = 12
"""Additional bytes of a packet that is encrypted with the receiver's public key."""
HEADER = struct.Struct("<IIIBBBB")
PORT_INTERVALS_S = {
    Port.TEXT: 2.0,
    Port.ALERT: 10.0,
    Port.POSITION: 10.0,
    Port.WAYPOINT: 10.0,
    Port.TELEMETRY: 10.0,
}
"""Shortest time in seconds between two packets of the same port from the host."""
NEVER_BY_KEY = {Port.POSITION, Port.NODE_INFO, Port.ROUTING}
EU_868 = 3
GROUP = ChannelSettings(sha256(b"a simulated group").digest(), "Kits")


class _AirPacket(NamedTuple):
    """Header and content of a packet. `channel` is the hash from which listeners find the key."""

    to: int
    source: int
    id: int
    flags: int
    channel: int
    content: bytes

    @property
    def hops_left(self) -> int:
        return self.flags & 7

    @property
    def want_ack(self) -> bool:
        return bool(self.flags & 8)

    def encode(self) -> bytes:
        return HEADER.pack(*self[:5], 0, 0) + self.content


class _Unacknowledged(NamedTuple):
    packet: bytes
    to: int
    tries: int
    retry_at: float


class Keyring:
    """Channels of a radio, and nodes that it knows. They determine which nodes can decrypt the
    radio's packets, and which packets the radio can decrypt.
    """

    def __init__(self, node: int) -> None:
        self.node = node
        self.channels = [ChannelSettings(b"\1"), GROUP]
        self.nodes: dict[int, NodeInfo] = {}
        """Nodes that the radio has heard, by their numbers."""

    def get_settings(self, index: int) -> MeshChannel:
        """Return the settings and role of the channel at `index`. If the radio has no such channel,
        return a channel that is OFF.
        """
        if index >= len(self.channels):
            return MeshChannel(index, ChannelSettings(), Role.OFF)
        role = Role.SECONDARY if index else Role.PRIMARY
        return MeshChannel(index, self.channels[index], role)

    def find_refusal(self, packet: MeshPacket, data: MeshData) -> int:
        """Return the error code if a packet cannot be sent, otherwise 0."""
        if packet.channel >= len(self.channels):
            return RoutingError.NO_CHANNEL
        by_key = self._is_by_key(packet.to, data.port)
        bytes_max = wire.DIRECT_BYTES if by_key else wire.CHANNEL_BYTES
        if len(data.payload) > bytes_max:
            return RoutingError.TOO_LARGE
        is_open = not by_key and not wire.is_private(self.channels[packet.channel])
        if packet.to not in (BROADCAST, self.node) and data.port not in NEVER_BY_KEY and is_open:
            return RoutingError.PKI_SEND_FAIL_PUBLIC_KEY
        return 0

    def _is_by_key(self, to: int, port: int) -> bool:
        recipient = self.nodes.get(to)
        has_key = (
            recipient is not None and recipient.user is not None and bool(recipient.user.public_key)
        )
        return to != BROADCAST and has_key and port not in NEVER_BY_KEY

    def encrypt(self, to: int, number: int, channel: int, data: MeshData) -> tuple[bytes, int]:
        """Return the encrypted content, and the hash from which the receiver finds the key."""
        plain = wire.DATA.encode(data)
        if self._is_by_key(to, data.port):
            key = _derive_shared_key(self.node, to)
            return _cover(key, self.node, number, plain) + bytes(KEY_BYTES), 0
        settings = self.channels[channel]
        key = wire.expand_key(settings.key)
        return _cover(key, self.node, number, plain), _compute_hash(settings)

    def decrypt(self, packet: _AirPacket) -> tuple[int | None, MeshData] | None:
        """Return the index of the channel and the decrypted content, or None if no key is right.
        The index is None if the packet was encrypted with this radio's public key.
        """
        for index, key in self._list_keys(packet):
            content = packet.content[:-KEY_BYTES] if index is None else packet.content
            plain = _cover(key, packet.source, packet.id, content)
            try:
                data = wire.DATA.decode(plain)
            except RemoteProtocolError:
                continue
            if data.port:
                return index, data
        return None

    def _list_keys(self, packet: _AirPacket) -> Iterator[tuple[int | None, bytes]]:
        if not packet.channel and packet.to == self.node:
            yield None, _derive_shared_key(packet.source, self.node)
        for index, settings in enumerate(self.channels):
            if _compute_hash(settings) == packet.channel:
                yield index, wire.expand_key(settings.key)


class HostSide:
    """Output to the host, and packets that wait until a host is connected."""

    def __init__(self) -> None:
        self.output = bytearray()
        self.is_connected = False
        self.free = QUEUE_MAX
        """Number of free places in the radio's queue, as last reported to the host."""
        self._stored: deque[MeshPacket] = deque()
        self._counted = 0

    def leave(self) -> None:
        """Discard the output, because the host has disconnected. Later packets are stored for the
        next host.
        """
        self.output = bytearray()
        self.is_connected = False

    def begin(self) -> None:
        """Send the stored packets to the host, which has connected and knows the radio now."""
        self.is_connected = True
        while self._stored:
            self.add_message(FromRadio(packet=self._stored.popleft()))

    def send_packet(self, packet: MeshPacket) -> None:
        """Send a packet from the air to the host. If no host is connected, store the packet until
        the next host connects. If the store is full, drop the packet, or the oldest packet if this
        one is a text.
        """
        if self.is_connected:
            self.add_message(FromRadio(packet=packet))
            return
        has_text = packet.decoded is not None and packet.decoded.port == Port.TEXT
        if len(self._stored) >= STORED_PACKETS_MAX:
            if not has_text:
                return
            self._stored.popleft()
        self._stored.append(packet)

    def add_message(self, message: FromRadio) -> None:
        """Add a message to the host's output, with the next number."""
        self._counted += 1
        self.output += wire.encode_from_radio(message._replace(number=self._counted))


class SimulatedMeshtastic(LoraBoard):
    """A simulated radio. Call `receive_data`, `receive_packet` and `tick` for each event, and then
    read `data_to_send` and `deadline`.

    After a reboot, the settings remain: name, region, channels and known nodes.
    """

    def __init__(self, number: int, air: SharedAir, random: Random) -> None:
        super().__init__(number, air, random, QUEUE_MAX)
        self.node = FIRST_NUMBER + number
        self.region, self.preset, self.hop_limit = EU_868, wire.SHORT_TURBO, 3
        self.keyring = Keyring(self.node)
        self.host = HostSide()
        self.metrics = DeviceMetrics(90, 4.1)
        self.user = User(
            wire.format_node_id(self.node),
            f"Node {number}",
            f"N{number}",
            43,
            _derive_public_key(self.node),
        )
        self.ack_wait = ACK_WAIT_S
        self.reboot()

    def reboot(self) -> None:
        """Restart. Waiting packets are lost, and the host must connect again."""
        self._transmitter.reboot()
        self._deframer = wire.Deframer()
        self.host.leave()
        self._recent: deque[int] = deque(maxlen=RECENT_IDS)
        self._seen: deque[tuple[int, int]] = deque(maxlen=SEEN_IDS_MAX)
        self._sent_at: dict[Port | int, float] = {}
        self._unacknowledged: dict[int, _Unacknowledged] = {}
        self._repeats: dict[tuple[int, int], tuple[float, bytes]] = {}
        """Packets from other radios that this radio will repeat, by source and id. Each has its due
        time and its bytes."""
        self._tune()

    def start(self, now: float) -> None:
        self.host.output += b"INFO  | ??:??:?? 1 [Main] booting\r\n"
        self.host.add_message(FromRadio(rebooted=True))

    def _tune(self) -> None:
        self.air.radios.pop(self.number, None)
        if self.region:
            self.air.radios[self.number] = wire.PRESETS[self.preset]

    def set_region(self, region: int) -> None:
        """Set the region. If `region` is 0, the radio has no region and does not transmit."""
        self.region = region
        self._tune()

    def leave_host(self) -> None:
        """Reset the line. Called when the host disconnects or another host replaces it."""
        self._deframer = wire.Deframer()
        self.host.leave()

    @property
    def deadline(self) -> float:
        again = (each.retry_at for each in self._unacknowledged.values())
        repeats = (due for due, _ in self._repeats.values())
        return min(self._transmitter.deadline, min(again, default=inf), min(repeats, default=inf))

    def receive_data(self, data: bytes, now: float) -> None:
        """Process messages from the host. Messages that cannot be decoded are skipped."""
        for message in self._deframer.receive_data(data):
            try:
                request = wire.TO_RADIO.decode(message)
            except RemoteProtocolError:
                continue
            if request.want_config is not None:
                self._send_config(request.want_config)
            elif request.heartbeat is not None:
                self._queue_status(QueueError.OK, 0)
                if request.heartbeat.nonce == 1:
                    self._send_own_facts(BROADCAST, now)
            elif request.disconnect:
                self.leave_host()
            elif request.packet is not None:
                self._process_packet(request.packet, now)

    def _send_config(self, nonce: int) -> None:
        """Send everything that a host requests first, in the firmware's order."""
        self.host.is_connected = False
        self.host.add_message(FromRadio(my_info=MyInfo(self.node)))
        own = NodeInfo(self.node, self.user, metrics=self.metrics)
        self.host.add_message(FromRadio(node_info=own))
        if nonce != wire.ONLY_NODES_NONCE:
            self.host.add_message(FromRadio(metadata=Metadata(FIRMWARE, self.user.hw_model)))
            for index in range(8):
                self.host.add_message(FromRadio(channel=self.keyring.get_settings(index)))
            lora = LoraConfig(
                True, self.preset, region=self.region, hop_limit=self.hop_limit, transmits=True
            )
            self.host.add_message(FromRadio(config=Config(lora)))
        if nonce != wire.WITHOUT_NODES_NONCE:
            for each in self.keyring.nodes.values():
                self.host.add_message(FromRadio(node_info=each))
        self.host.add_message(FromRadio(config_complete=nonce))
        self.host.begin()

    def _process_packet(self, packet: MeshPacket, now: float) -> None:
        """Transmit a packet from the host, or report the reason for a refusal to the host."""
        number = packet.id or self.random.getrandbits(32) or 1
        if packet.id and packet.id in self._recent:
            # The firmware does not answer a duplicate packet.
            return
        self._recent.append(number)
        data = packet.decoded
        result = int(RoutingError.BAD_REQUEST) if data is None else self._find_refusal(packet, data)
        if data is None or result:
            self._queue_status(result, number)
            if result in (RoutingError.TOO_LARGE, RoutingError.PKI_SEND_FAIL_PUBLIC_KEY):
                self._answer_host(number, RoutingError(result))
            return
        if self._check_interval(data.port, now):
            if data.port == Port.TEXT:
                self.host.add_message(FromRadio(notification=Notification(30, "one text per 2 s")))
                self._queue_status(RoutingError.RATE_LIMIT_EXCEEDED, number)
            else:
                # The packet is dropped, but the report is the same as for a packet that waits.
                self._queue_status(QueueError.OK, number)
            return
        if packet.to == self.node:
            self._queue_status(QueueError.LOCALLY, number)
            return
        want_ack = packet.want_ack and packet.to != BROADCAST
        hops = min(packet.hop_limit, 7)
        flags = hops | want_ack << 3 | hops << 5
        content, channel = self.keyring.encrypt(packet.to, number, packet.channel, data)
        sent = _AirPacket(packet.to, self.node, number, flags, channel, content)
        is_queued = self._transmitter.queue_packet([sent.encode()], now)
        self._queue_status(QueueError.OK if is_queued else QueueError.FULL, number)
        if is_queued and packet.want_ack:
            again = self._compute_retry_time(len(sent.encode()), now)
            self._unacknowledged[number] = _Unacknowledged(sent.encode(), packet.to, 1, again)

    def _check_interval(self, port: int, now: float) -> bool:
        limit = PORT_INTERVALS_S.get(Port(port)) if port in Port.__members__.values() else None
        if limit is None:
            return False
        early = now < self._sent_at.get(port, -inf) + limit
        if not early:
            self._sent_at[port] = now
        return early

    def _find_refusal(self, packet: MeshPacket, data: MeshData) -> int:
        """Return the error code if a packet cannot be sent, otherwise 0."""
        return self.keyring.find_refusal(packet, data) if self.region else QueueError.OFF

    def data_to_send(self) -> bytes:
        data, self.host.output = bytes(self.host.output), bytearray()
        return data

    def _compute_retry_time(self, size: int, now: float) -> float:
        return now + 2 * compute_air_time(wire.PRESETS[self.preset], size) + self.ack_wait

    def tick(self, now: float) -> None:
        """Transmit all packets that are due: packets that this radio repeats for other radios, and
        unacknowledged packets. Each is sent at most `TRANSMISSIONS_MAX` times.
        """
        self._transmitter.tick(now)
        for packet_key, (due, packet) in [*self._repeats.items()]:
            if due <= now:
                del self._repeats[packet_key]
                self._transmitter.queue_packet([packet], now)
        for number, waits in [*self._unacknowledged.items()]:
            if waits.retry_at > now:
                continue
            if waits.tries >= TRANSMISSIONS_MAX:
                del self._unacknowledged[number]
                self._answer_host(number, RoutingError.MAX_RETRANSMIT)
            else:
                self._transmitter.queue_packet([waits.packet], now)
                self._unacknowledged[number] = waits._replace(
                    tries=waits.tries + 1, retry_at=self._compute_retry_time(len(waits.packet), now)
                )
        # The host waits for a new report if the last one said that the queue is full.
        if self.host.free == 0 and self._transmitter.waiting < QUEUE_MAX:
            self._queue_status(QueueError.OK, 0)

    def receive_packet(self, packet: bytes, now: float) -> None:
        """Receive a packet from the air. If the packet is for another node and has hops left,
        repeat it, unless another radio repeats it first.
        """
        if len(packet) < HEADER.size:
            return
        recipient, source, number, flags, channel, _, _ = HEADER.unpack_from(packet)
        air_packet = _AirPacket(recipient, source, number, flags, channel, packet[HEADER.size :])
        if source == self.node:
            self._record_repeat(number)
            return
        again = (source, number) in self._seen
        self._seen.append((source, number))
        if recipient == self.node:
            self._receive_own(air_packet, now, again=again)
        elif not again:
            self._deliver(air_packet, now)
            if air_packet.hops_left:
                due = now + self.random.uniform(*CONTENTION_DELAY_S)
                self._repeats[source, number] = due, air_packet._replace(flags=flags - 1).encode()
        else:
            # Another radio repeats the packet, so this radio need not repeat it.
            self._repeats.pop((source, number), None)

    def _record_repeat(self, number: int) -> None:
        """Record that another radio repeats this radio's packet. For a broadcast, this is the
        sender's only confirmation.
        """
        waits = self._unacknowledged.get(number)
        if waits is not None and waits.to == BROADCAST:
            del self._unacknowledged[number]
            self._answer_host(number, RoutingError.NONE)

    def _receive_own(self, packet: _AirPacket, now: float, *, again: bool) -> None:
        decrypted = self.keyring.decrypt(packet)
        if packet.want_ack:
            error = RoutingError.NO_CHANNEL if decrypted is None else RoutingError.NONE
            self._acknowledge(packet, error, now)
        if decrypted is not None and not again:
            self._deliver(packet, now)

    def _acknowledge(self, packet: _AirPacket, error: RoutingError, now: float) -> None:
        routing = wire.ROUTING.encode(Routing(error))
        data = MeshData(Port.ROUTING, routing, request_id=packet.id)
        self._send_own(packet.source, data, now)

    def _send_own(self, to: int, data: MeshData, now: float) -> None:
        number = self.random.getrandbits(32) or 1
        content, channel = self.keyring.encrypt(to, number, 0, data)
        flags = self.hop_limit | self.hop_limit << 5
        self._transmitter.queue_packet(
            [_AirPacket(to, self.node, number, flags, channel, content).encode()], now
        )

    def _send_own_facts(self, to: int, now: float) -> None:
        self._send_own(to, MeshData(Port.NODE_INFO, wire.USER.encode(self.user)), now)

    def _deliver(self, air_packet: _AirPacket, now: float) -> None:
        decrypted = self.keyring.decrypt(air_packet)
        if decrypted is None:
            return
        index, data = decrypted
        by_key = index is None
        packet = MeshPacket(
            air_packet.source,
            air_packet.to,
            index or 0,
            data,
            id=air_packet.id,
            rx_snr=float(SNR),
            rx_rssi=RSSI,
            hop_limit=air_packet.hops_left,
            hop_start=air_packet.flags >> 5,
            want_ack=air_packet.want_ack,
            public_key=_derive_public_key(air_packet.source) if by_key else b"",
            pki_encrypted=by_key,
            transport=1,
        )
        self._store_identity(packet, data, now)
        if answer := wire.decode_answer(packet):
            if answer[0] not in self._unacknowledged:
                return
            del self._unacknowledged[answer[0]]
        self.host.send_packet(packet)

    def _store_identity(self, packet: MeshPacket, data: MeshData, now: float) -> None:
        node_info = self.keyring.nodes.get(packet.source, NodeInfo(packet.source))
        try:
            if data.port == Port.NODE_INFO:
                node_info = node_info._replace(user=wire.USER.decode(data.payload))
                if data.want_response and packet.to == self.node:
                    self._send_own_facts(packet.source, now)
            elif data.port == Port.POSITION:
                node_info = node_info._replace(position=wire.POSITION.decode(data.payload))
        except RemoteProtocolError:
            return
        self.keyring.nodes[packet.source] = node_info._replace(snr=packet.rx_snr)

    def _answer_host(self, number: int, error: RoutingError) -> None:
        routing = wire.ROUTING.encode(Routing(error))
        data = MeshData(Port.ROUTING, routing, request_id=number)
        self.host.send_packet(
            MeshPacket(self.node, self.node, 0, data, id=self.random.getrandbits(32) or 1)
        )

    def _queue_status(self, result: int, number: int) -> None:
        self.host.free = QUEUE_MAX - self._transmitter.waiting
        status = QueueStatus(result, self.host.free, QUEUE_MAX, number)
        self.host.add_message(FromRadio(queue_status=status))


def introduce_all(radios: list[SimulatedMeshtastic], crowd: int = 0) -> None:
    """Make the radios know each other, as if each had heard the others. Also add `crowd` further
    nodes.
    """
    for introduced in radios:
        for each in radios:
            if each is not introduced:
                node_info = NodeInfo(each.node, each.user, snr=SNR, hops_away=0)
                introduced.keyring.nodes[each.node] = node_info
        for number in range(0xC0DE_0000, 0xC0DE_0000 + crowd):
            name = f"Passer-by {number & 0xFFFF}"
            user = User(
                wire.format_node_id(number),
                name,
                f"{number & 0xFFF:03x}",
                9,
                _derive_public_key(number),
            )
            introduced.keyring.nodes[number] = NodeInfo(number, user, snr=-7.5, hops_away=2)


def _derive_public_key(node: int) -> bytes:
    return sha256(b"public %d" % node).digest()


def _derive_shared_key(one: int, other: int) -> bytes:
    return sha256(b"shared %d %d" % (min(one, other), max(one, other))).digest()


def _cover(key: bytes, source: int, number: int, content: bytes) -> bytes:
    """Encrypt or decrypt `content`. The operation is its own inverse."""
    stream = b"".join(
        sha256(key + struct.pack("<III", source, number, block)).digest()
        for block in range(-(-len(content) // 32))
    )
    return bytes(byte ^ other for byte, other in zip(content, stream, strict=False))


def _compute_hash(settings: ChannelSettings) -> int:
    """Return the firmware's hash of a channel. In the simulation it is never 0, because 0 means
    encryption with a public key.
    """
    digest = 0
    for byte in settings.name.encode() + wire.expand_key(settings.key):
        digest ^= byte
    return digest or 0xFF
