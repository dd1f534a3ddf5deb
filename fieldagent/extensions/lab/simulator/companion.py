"""A radio with MeshCore's companion firmware, as its host and other radios see it. No I/O.

On the air, a packet has the firmware's header, payload types and lengths. The firmware encrypts
with AES and a key agreed by X25519. In the simulation, a stream of SHA-256 with the same length
replaces AES, and a SHA-256 digest replaces the signature of an advert. Without the key, a simulated
packet cannot be decoded either. No radio repeats a packet: two companions hear each other directly
or not at all.
"""

from __future__ import annotations

import struct
from collections import deque
from hashlib import sha256
from random import Random

from fieldagent.extensions.lab.simulator.air import SharedAir
from fieldagent.extensions.lab.simulator.lora import SNR, LoraBoard
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import meshcore_companion as wire
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.lora import LoraSettings, compute_air_time
from fieldagent.wire.meshcore_companion import (
    CompanionChannel,
    CompanionCommand,
    CompanionContact,
    CompanionDevice,
    CompanionError,
    CompanionMessage,
    CompanionSelf,
    CompanionSent,
    CompanionText,
    ContactType,
    TextType,
)

LORA = LoraSettings(910_525_000, 62_500, 7, 5)
QUEUE_MAX = 16
"""Largest number of packets that wait for the channel. The radio refuses further packets."""
STORED_TEXTS_MAX = 16
"""Largest number of texts that wait for a host. A further text replaces the oldest text."""
CONTACTS_MAX, CHANNELS_MAX = 100, 8
TEXT_MAX = 160
"""Largest number of bytes of a text to a contact."""
NAME_MAX = 31
"""Largest number of bytes of a radio's name."""
BOOT_TIME = 1_715_770_351
"""Unix time of the radio's clock after power-on. The clock has no battery."""
SEEN_PACKETS_MAX = 128
"""Number of recent packets from which the radio recognises duplicates."""
BATTERY_V = 4.01
MIXER = struct.Struct("<IB")
"""Header of a text: its time, and its type and attempt."""
GROUP = CompanionChannel(1, "Kits", sha256(b"a simulated group").digest()[:16])
FLOOD, BY_PATH = 1, 2
"""Kinds of routing of a packet."""
HAS_PLACE, HAS_NAME = 0x10, 0x80
"""Bits of an advert's flags."""
ADVERT = struct.Struct("<32sI64sB")
TELEMETRY = 3
"""Type code of a telemetry request."""


class _Kind:
    """Types of payload that a packet on the air can have."""

    REQUEST, RESPONSE, TEXT, ACK, ADVERT, GROUP_TEXT = range(6)


class _AwaitedAck(NamedTuple):
    to: bytes
    since: float


class ContactBook(dict[bytes, CompanionContact]):
    """Contacts of a radio, by their keys."""

    def add(self, contact: CompanionContact) -> bool:
        """Add or change a contact. Return False if there is no space."""
        if contact.key not in self and len(self) >= CONTACTS_MAX:
            return False
        self[contact.key] = contact
        return True

    def find_contact(self, prefix: bytes) -> CompanionContact | None:
        """Return a contact whose key begins with `prefix`, or None."""
        return next((each for key, each in self.items() if prefix and key.startswith(prefix)), None)


class SimulatedCompanion(LoraBoard):
    """A simulated radio. Call `receive_data`, `receive_packet` and `tick` for each event, and then
    read `data_to_send` and `deadline`.

    After a reboot, the settings remain: key, name, position, channels and contacts. The clock and
    the texts that wait for the host are lost.
    """

    def __init__(self, number: int, air: SharedAir, random: Random) -> None:
        super().__init__(number, air, random, QUEUE_MAX)
        self.key = sha256(b"companion %d" % number).digest()
        self.name = f"Node {number}"
        self.position = (0, 0)
        self.adds_by_hand = False
        self.mute = False
        """True if the radio sends nothing to its host, as if it had another firmware."""
        self.contacts = ContactBook()
        self.channels = {0: CompanionChannel(0, "Public", wire.PUBLIC_KEY), 1: GROUP}
        self.air.radios[number] = LORA
        self.reboot()

    def reboot(self) -> None:
        """Restart. The clock, the texts for the host and the packets are lost. The settings
        remain.
        """
        self._transmitter.reboot()
        self._deframer = wire.CompanionDeframer(wire.TO_RADIO)
        self._output = bytearray()
        self._stored: deque[CompanionText] = deque(maxlen=STORED_TEXTS_MAX)
        self._seen: deque[bytes] = deque(maxlen=SEEN_PACKETS_MAX)
        self._awaited: dict[bytes, _AwaitedAck] = {}
        self._clock = BOOT_TIME - 0.0
        self._clock_at: float | None = None

    def start(self, now: float) -> None:
        self._output += b"MeshCore simulated\r\n"

    def leave_host(self) -> None:
        self._deframer = wire.CompanionDeframer(wire.TO_RADIO)
        self._output = bytearray()

    def data_to_send(self) -> bytes:
        """Return the bytes for the host. If the radio is mute, return no bytes and discard them."""
        data = super().data_to_send()
        return b"" if self.mute else data

    def tick(self, now: float) -> None:
        self._transmitter.tick(now)

    def read_time(self, now: float) -> int:
        """Return the Unix time that the radio's clock shows."""
        if self._clock_at is None:
            self._clock_at = now
        return int(self._clock + now - self._clock_at)

    def receive_data(self, data: bytes, now: float) -> None:
        for content in self._deframer.receive_data(data):
            try:
                self._run_command(content[0], content[1:], now)
            except RemoteProtocolError:
                self._answer_done(CompanionError.ILLEGAL)

    def _send_to_host(self, kind: int, body: bytes = b"") -> None:
        self._output += wire.make_frame(bytes([kind]) + body, wire.FROM_RADIO)

    def _answer_done(self, error: CompanionError | None = None) -> None:
        """Answer the host's command with OK or with an error."""
        if error is None:
            self._send_to_host(CompanionMessage.OK)
        else:
            self._send_to_host(CompanionMessage.ERROR, bytes([error]))

    def _run_command(self, command: int, body: bytes, now: float) -> None:
        """Run one command of the host. Raises RemoteProtocolError for a malformed command."""
        if command == CompanionCommand.SEND_TEXT:
            self._send_text(body, now)
        elif command == CompanionCommand.SEND_CHANNEL_TEXT:
            self._send_channel_text(body, now)
        elif command == CompanionCommand.ASK_TELEMETRY:
            self._ask_telemetry(body[3:], now)
        elif command == CompanionCommand.SEND_ADVERT:
            self._transmitter.queue_packet([self._make_advert(now)], now)
            self._answer_done()
        elif command == CompanionCommand.NEXT_MESSAGE:
            if self._stored:
                self._output += wire.make_frame(
                    wire.encode_text(self._stored.popleft()), wire.FROM_RADIO
                )
            else:
                self._send_to_host(CompanionMessage.NO_MESSAGE)
        elif not (self._answer_query(command, body, now) or self._set(command, body, now)):
            self._answer_done(CompanionError.UNSUPPORTED)

    def _answer_query(self, command: int, body: bytes, now: float) -> bool:
        """Answer a command that only reads, such as the clock or the contacts. Return False if the
        command is of another kind.
        """
        if command == CompanionCommand.APP_START:
            self_info = CompanionSelf(self.key, self.name, ContactType.CHAT, *self.position)
            radio = (LORA.frequency // 1000, LORA.bandwidth, LORA.spreading, LORA.coding, 20)
            self_info = CompanionSelf(*self_info[:5], self.adds_by_hand, *radio)
            self._output += wire.make_frame(wire.encode_self(self_info), wire.FROM_RADIO)
        elif command == CompanionCommand.QUERY_DEVICE:
            device = CompanionDevice(8, CONTACTS_MAX, CHANNELS_MAX, "v1.12.simulated", "Simulated")
            self._output += wire.make_frame(wire.encode_device(device), wire.FROM_RADIO)
        elif command == CompanionCommand.GET_CONTACTS:
            self._list_contacts()
        elif command == CompanionCommand.GET_CONTACT:
            contact = self.contacts.get(body[: wire.KEY_BYTES])
            if contact is None:
                self._answer_done(CompanionError.NOT_FOUND)
            else:
                self._send_to_host(CompanionMessage.CONTACT, wire.encode_contact(contact))
        elif command == CompanionCommand.GET_TIME:
            self._output += wire.make_frame(
                wire.encode_number(CompanionMessage.TIME, self.read_time(now)), wire.FROM_RADIO
            )
        elif command == CompanionCommand.GET_BATTERY:
            self._send_to_host(
                CompanionMessage.BATTERY, struct.pack("<HII", round(BATTERY_V * 1000), 40, 1000)
            )
        elif command == CompanionCommand.GET_CHANNEL:
            index = body[0] if body else CHANNELS_MAX
            if index >= CHANNELS_MAX:
                self._answer_done(CompanionError.NOT_FOUND)
            else:
                channel = self.channels.get(index, CompanionChannel(index, "", bytes(16)))
                self._send_to_host(CompanionMessage.CHANNEL, wire.encode_channel(channel))
        else:
            return False
        return True

    def _list_contacts(self) -> None:
        self._output += wire.make_frame(
            wire.encode_number(CompanionMessage.CONTACTS_BEGIN, len(self.contacts)), wire.FROM_RADIO
        )
        for each in self.contacts.values():
            self._send_to_host(CompanionMessage.CONTACT, wire.encode_contact(each))
        latest = max((each.changed for each in self.contacts.values()), default=0)
        self._output += wire.make_frame(
            wire.encode_number(CompanionMessage.CONTACTS_END, latest), wire.FROM_RADIO
        )

    def _set(self, command: int, body: bytes, now: float) -> bool:
        """Change a setting. Return False if the command does not change a setting. Raises
        RemoteProtocolError for a malformed command.
        """
        key = body[: wire.KEY_BYTES]
        missing = None if key in self.contacts else CompanionError.NOT_FOUND
        if command == CompanionCommand.SET_TIME:
            wanted_number = wire.decode_number(body)
            # The clock never goes backwards. Otherwise other radios would treat the radio's
            # messages as duplicates.
            backwards = wanted_number < self.read_time(now)
            if not backwards:
                self._clock, self._clock_at = wanted_number, now
            self._answer_done(CompanionError.ILLEGAL if backwards else None)
        elif command == CompanionCommand.SET_NAME:
            self.name = body[:NAME_MAX].decode("utf-8", "ignore")
            self._answer_done()
        elif command == CompanionCommand.SET_POSITION:
            self.position = wire.decode_position(body)
            self._answer_done()
        elif command == CompanionCommand.SET_CHANNEL:
            channel = wire.decode_channel(bytes([CompanionMessage.CHANNEL]) + body)
            self.channels[channel.place] = channel
            self._answer_done()
        elif command == CompanionCommand.PUT_CONTACT:
            contact = wire.decode_bare_contact(body)
            added = self.contacts.add(contact._replace(changed=self.read_time(now)))
            self._answer_done(None if added else CompanionError.TABLE_FULL)
        elif command == CompanionCommand.REMOVE_CONTACT:
            self.contacts.pop(key, None)
            self._answer_done(missing)
        elif command == CompanionCommand.RESET_PATH:
            if missing is None:
                self.contacts[key] = self.contacts[key]._replace(path_length=-1)
            self._answer_done(missing)
        else:
            return False
        return True

    def _send_text(self, body: bytes, now: float) -> None:
        """Send a text to a contact. Raises RemoteProtocolError for a malformed command."""
        recipient, text, time, attempt = wire.decode_send_text(body)
        contact = self.contacts.find_contact(recipient)
        if contact is None:
            self._answer_done(CompanionError.NOT_FOUND)
            return
        if len(text.encode()) > TEXT_MAX:
            self._answer_done(CompanionError.ILLEGAL)
            return
        plain = MIXER.pack(time, attempt) + text.encode()
        ack = _compute_ack(plain, self.key)
        sent = self._send_to(contact, _Kind.TEXT, plain, now)
        if sent is not None:
            self._awaited[ack] = _AwaitedAck(contact.key, now)
            self._output += wire.make_frame(
                wire.encode_sent(sent._replace(ack=ack)), wire.FROM_RADIO
            )

    def _ask_telemetry(self, key: bytes, now: float) -> None:
        contact = self.contacts.get(key)
        if contact is None:
            self._answer_done(CompanionError.NOT_FOUND)
            return
        plain = MIXER.pack(self.read_time(now), TELEMETRY)
        sent = self._send_to(contact, _Kind.REQUEST, plain, now)
        if sent is not None:
            self._output += wire.make_frame(wire.encode_sent(sent), wire.FROM_RADIO)

    def _send_to(
        self, contact: CompanionContact, kind: int, plain: bytes, now: float
    ) -> CompanionSent | None:
        """Transmit an encrypted packet to one contact. If the queue is full, report an error to the
        host and return None.
        """
        covered = _encrypt(_derive_shared_key(self.key, contact.key), plain)
        floods = contact.path_length < 0
        header = bytes([kind << 2 | (FLOOD if floods else BY_PATH), 0])
        packet = header + contact.key[:1] + self.key[:1] + covered
        if not self._transmitter.queue_packet([packet], now):
            self._answer_done(CompanionError.TABLE_FULL)
            return None
        wait = 2.0 + 4 * compute_air_time(LORA, len(packet))
        return CompanionSent(floods, bytes(4), wait)

    def _send_channel_text(self, body: bytes, now: float) -> None:
        """Send a text on a channel. Raises RemoteProtocolError for a malformed command."""
        index, text, time = wire.decode_send_channel_text(body)
        channel = self.channels.get(index)
        if channel is None or not any(channel.key):
            self._answer_done(CompanionError.NOT_FOUND)
            return
        plain = MIXER.pack(time, 0) + f"{self.name}: {text}".encode()
        packet = bytes([_Kind.GROUP_TEXT << 2 | FLOOD, 0, _compute_hash(channel)])
        is_queued = self._transmitter.queue_packet([packet + _encrypt(channel.key, plain)], now)
        self._answer_done(None if is_queued else CompanionError.TABLE_FULL)

    def _make_advert(self, now: float) -> bytes:
        flags = ContactType.CHAT | HAS_NAME | (HAS_PLACE if any(self.position) else 0)
        packed_position = struct.pack("<ii", *self.position) if any(self.position) else b""
        tail = packed_position + self.name.encode()
        signature = _compute_signature(self.key, self.read_time(now), tail)
        head = ADVERT.pack(self.key, self.read_time(now), signature, flags)
        return bytes([_Kind.ADVERT << 2 | FLOOD, 0]) + head + tail

    def receive_packet(self, packet: bytes, now: float) -> None:
        """Receive a packet from the air. Repeated packets are ignored. The radio hears nothing
        while it transmits.
        """
        if self._transmitter.is_transmitting or len(packet) < 3 or packet[1]:
            return
        packet_hash = sha256(packet).digest()[:8]
        if packet_hash in self._seen:
            return
        self._seen.append(packet_hash)
        kind, payload = packet[0] >> 2 & 15, packet[2:]
        if kind == _Kind.ACK:
            self._receive_ack(payload, now)
        elif kind == _Kind.ADVERT:
            self._receive_advert(payload, now)
        elif kind == _Kind.GROUP_TEXT:
            self._receive_group_text(payload)
        elif len(payload) > 2 and payload[:1] == self.key[:1]:
            self._receive_own(kind, payload, by_path=packet[0] & 3 == BY_PATH, now=now)

    def _receive_own(self, kind: int, payload: bytes, *, by_path: bool, now: float) -> None:
        for each in self.contacts.values():
            if each.key[:1] != payload[1:2]:
                continue
            plain = _decrypt(_derive_shared_key(self.key, each.key), payload[2:])
            if plain is None or len(plain) < MIXER.size:
                continue
            time, flags = MIXER.unpack_from(plain)
            if kind == _Kind.TEXT:
                ack = bytes([_Kind.ACK << 2 | FLOOD, 0]) + _compute_ack(plain, each.key)
                self._transmitter.queue_packet([ack], now)
                hops = None if by_path else 0
                text = plain[MIXER.size :].decode("utf-8", "replace")
                sender = each.key[: wire.PREFIX_BYTES]
                kind_of_text = TextType(flags >> 2 & 3) if flags >> 2 < 3 else TextType.PLAIN
                self._store_text(CompanionText(sender, None, time, text, kind_of_text, hops, SNR))
            elif kind == _Kind.REQUEST and flags == TELEMETRY:
                answer = MIXER.pack(time, TELEMETRY) + struct.pack("<H", round(BATTERY_V * 100))
                self._send_to(each, _Kind.RESPONSE, answer, now)
            elif kind == _Kind.RESPONSE and len(plain) == MIXER.size + 2:
                (hundredths,) = struct.unpack_from("<H", plain, MIXER.size)
                telemetry = wire.encode_telemetry(each.key, hundredths / 100)
                self._output += wire.make_frame(telemetry, wire.FROM_RADIO)
            return

    def _receive_group_text(self, payload: bytes) -> None:
        for channel in self.channels.values():
            if _compute_hash(channel) != payload[0]:
                continue
            plain = _decrypt(channel.key, payload[1:])
            if plain is not None and len(plain) >= MIXER.size:
                time, _ = MIXER.unpack_from(plain)
                text = plain[MIXER.size :].decode("utf-8", "replace")
                self._store_text(CompanionText(b"", channel.place, time, text, hops=0, snr=SNR))
                return

    def _store_text(self, message: CompanionText) -> None:
        self._stored.append(message)
        self._send_to_host(CompanionMessage.MESSAGE_WAITS)

    def _receive_ack(self, payload: bytes, now: float) -> None:
        awaited = self._awaited.pop(payload[:4], None)
        if awaited is None:
            return
        if awaited.to in self.contacts:
            # The acknowledgement arrived directly, so the path to the contact is direct too.
            self.contacts[awaited.to] = self.contacts[awaited.to]._replace(path_length=0)
        round_trip_ms = round((now - awaited.since) * 1000)
        self._send_to_host(CompanionMessage.ACK, payload[:4] + struct.pack("<I", round_trip_ms))

    def _receive_advert(self, payload: bytes, now: float) -> None:
        if len(payload) < ADVERT.size:
            return
        key, advertised, signature, flags = ADVERT.unpack_from(payload)
        tail = payload[ADVERT.size :]
        if signature != _compute_signature(key, advertised, tail):
            return
        position = (0, 0)
        if flags & HAS_PLACE and len(tail) >= 8:
            position, tail = struct.unpack_from("<ii", tail), tail[8:]
        before = self.contacts.get(key, CompanionContact(key, flags & 15, ""))
        contact = before._replace(
            name=tail.decode("utf-8", "replace"),
            advertised=advertised,
            latitude=position[0],
            longitude=position[1],
            changed=self.read_time(now),
        )
        if key not in self.contacts and self.adds_by_hand:
            self._send_to_host(CompanionMessage.NEW_ADVERT, wire.encode_contact(contact))
        elif self.contacts.add(contact):
            self._send_to_host(CompanionMessage.ADVERT, key)
        else:
            self._send_to_host(CompanionMessage.CONTACTS_FULL)


def introduce_all(radios: list[SimulatedCompanion], crowd: int = 0) -> None:
    """Make the radios know each other, as if each had heard the adverts of the others. Also add up
    to `crowd` further contacts if there is space.
    """
    for introduced in radios:
        for each in radios:
            if each is not introduced:
                introduced.contacts.add(
                    CompanionContact(each.key, ContactType.CHAT, each.name, BOOT_TIME)
                )
        for number in range(crowd):
            key = sha256(b"passer-by %d" % number).digest()
            introduced.contacts.add(
                CompanionContact(key, ContactType.CHAT, f"Passer-by {number}", BOOT_TIME)
            )


def _derive_shared_key(one: bytes, other: bytes) -> bytes:
    return sha256(b"shared " + min(one, other) + max(one, other)).digest()


def _compute_signature(key: bytes, time: int, tail: bytes) -> bytes:
    return sha256(b"signed " + key + struct.pack("<I", time) + tail).digest() * 2


def _compute_ack(plain: bytes, sender: bytes) -> bytes:
    return sha256(plain + sender).digest()[:4]


def _compute_hash(channel: CompanionChannel) -> int:
    return sha256(channel.key).digest()[0]


def _make_key_stream(key: bytes, size: int) -> bytes:
    blocks = range(-(-size // 32))
    return b"".join(sha256(key + struct.pack("<I", block)).digest() for block in blocks)[:size]


def _encrypt(key: bytes, plain: bytes) -> bytes:
    """Return the encrypted bytes after a 2-byte check value, from which the receiver recognises the
    right key.
    """
    covered = bytes(a ^ b for a, b in zip(plain, _make_key_stream(key, len(plain)), strict=True))
    return sha256(key + covered).digest()[:2] + covered


def _decrypt(key: bytes, data: bytes) -> bytes | None:
    covered = data[2:]
    if sha256(key + covered).digest()[:2] != data[:2]:
        return None
    return bytes(a ^ b for a, b in zip(covered, _make_key_stream(key, len(covered)), strict=True))
