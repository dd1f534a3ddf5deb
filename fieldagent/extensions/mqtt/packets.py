"""MQTT 3.1.1 (OASIS, 29 October 2014), the client's side: packets to bytes and back. No I/O.

    type     from us                    from the broker
    1  2     CONNECT                    CONNACK
    3  4     PUBLISH, PUBACK            PUBLISH, PUBACK
    8  9     SUBSCRIBE                  SUBACK
    12 13    PINGREQ                    PINGRESP
    14       DISCONNECT

A packet has a byte of type and flags, the length of the rest (up to four bytes of seven bits, the
lowest first), and the rest. Quality of service is 0 or 1. The program subscribes with at most 1, so
a broker never sends a message with 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import RemoteProtocolError

PACKET_MAX_BYTES = 65_536
"""Largest Remaining Length in bytes (section 2.2.3) of a packet that the reader stores. The reader
skips the payload of a longer PUBLISH."""
TOPIC_MAX_BYTES = 1_024
"""Largest number of bytes of a topic from the broker. The topics of this program are shorter."""
_REST_MAX = 268_435_455
"""Largest length that four bytes of seven bits can contain (section 2.2.3)."""
SUBSCRIPTION_REFUSED = 0x80
"""Code in a SUBACK for a subscription that the broker refused."""


class PacketType(IntEnum):
    """Types of packets, by the number in the first byte (table 2.1)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    SUBSCRIBE = 8
    SUBACK = 9
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14


class ConnectCode(IntEnum):
    """Answers of a broker to a CONNECT (table 3.1)."""

    ACCEPTED = 0
    VERSION = 1
    IDENTIFIER = 2
    UNAVAILABLE = 3
    CREDENTIALS = 4
    NOT_AUTHORIZED = 5


class LastWill(NamedTuple):
    """Message that the broker publishes, retained and with QoS 1, when it loses the connection to
    the client.
    """

    topic: str
    payload: bytes


class Connack(NamedTuple):
    code: int
    """Value of `ConnectCode`, or a reserved value."""
    present: bool
    """True if the broker has stored the session."""


class Published(NamedTuple):
    """A PUBLISH from the broker."""

    topic: str
    payload: bytes
    """Payload; empty if the payload was skipped."""
    number: int | None
    """Packet number for the acknowledgement; None if the QoS is 0."""
    retained: bool
    """True if the broker had stored the message, so it is not new."""
    again: bool = False
    """True if the message may have arrived before."""
    skipped: int = 0
    """Length in bytes of a payload that the reader skipped because it is too long."""


class Puback(NamedTuple):
    number: int


class Suback(NamedTuple):
    number: int
    codes: tuple[int, ...]
    """Granted QoS of each subscription, or `SUBSCRIPTION_REFUSED`."""


class Pingresp(NamedTuple):
    """Answer to a ping."""


FromBroker = Connack | Published | Puback | Suback | Pingresp

_SIZES: dict[int, range] = {
    PacketType.CONNACK: range(2, 3),
    PacketType.PUBACK: range(2, 3),
    PacketType.SUBACK: range(3, 3 + 16),
    PacketType.PINGRESP: range(1),
}
"""Allowed sizes of the rest, for packets from a broker. A SUBACK is short, because the program
subscribes to only a few topics at a time."""

PINGREQ = bytes((PacketType.PINGREQ << 4, 0))
DISCONNECT = bytes((PacketType.DISCONNECT << 4, 0))
"""Packet with which a client disconnects, so that the broker does not publish its will."""


def encode_connect(
    client: str,
    keepalive: int,
    *,
    clean: bool = False,
    will: LastWill | None = None,
    user: str | None = None,
    password: str | None = None,
) -> bytes:
    """Return a CONNECT. `keepalive` is in seconds. If `clean` is False, the broker stores messages
    while the client is disconnected. A password needs a user (section 3.1.2.9).
    """
    flags = 0x02 if clean else 0
    payload = _encode_text(client)
    if will is not None:
        flags |= 0x04 | 0x08 | 0x20
        payload += _encode_text(will.topic) + _encode_counted(will.payload)
    if user is not None:
        flags |= 0x80
        payload += _encode_text(user)
        if password is not None:
            flags |= 0x40
            payload += _encode_text(password)
    head = _encode_text("MQTT") + bytes((4, flags)) + keepalive.to_bytes(2)
    return _encode_packet(PacketType.CONNECT, 0, head + payload)


def encode_publish(
    topic: str,
    payload: bytes,
    packet_number: int | None = None,
    *,
    retain: bool = False,
) -> bytes:
    """Return a PUBLISH. If `packet_number` (1 to 65 535) is given, the packet has QoS 1, otherwise
    QoS 0.
    """
    flags = int(retain) | (0 if packet_number is None else 0x02)
    name = b"" if packet_number is None else packet_number.to_bytes(2)
    return _encode_packet(PacketType.PUBLISH, flags, _encode_text(topic) + name + payload)


def encode_puback(packet_number: int) -> bytes:
    """Return the acknowledgement of the QoS 1 message with this number (section 3.4)."""
    return _encode_packet(PacketType.PUBACK, 0, packet_number.to_bytes(2))


def encode_subscribe(packet_number: int, filters: list[str]) -> bytes:
    """Return a SUBSCRIBE that requests QoS 1 for each filter."""
    filter_bytes = b"".join(_encode_text(each) + b"\x01" for each in filters)
    return _encode_packet(PacketType.SUBSCRIBE, 0x02, packet_number.to_bytes(2) + filter_bytes)


def _encode_packet(kind: PacketType, flags: int, rest: bytes) -> bytes:
    return bytes((kind << 4 | flags,)) + _encode_length(len(rest)) + rest


def _encode_length(size: int) -> bytes:
    assert size <= _REST_MAX
    octets = bytearray()
    while True:
        size, low = divmod(size, 128)
        octets.append(low | (0x80 if size else 0))
        if not size:
            return bytes(octets)


def _encode_text(text: str) -> bytes:
    return _encode_counted(text.encode())


def _encode_counted(data: bytes) -> bytes:
    return len(data).to_bytes(2) + data


class PacketReader:
    """Splits the broker's bytes into packets. The reader never stores more than one packet.

    After a RemoteProtocolError, close the stream, because the rest cannot be read.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skip = 0
        """Number of bytes that must still be skipped."""

    def receive_data(self, data: bytes | bytearray) -> Iterator[FromBroker]:
        """Yield each packet that `data` completes. Raises RemoteProtocolError for malformed
        data.
        """
        view = memoryview(bytes(data))
        while True:
            skipped = min(self._skip, len(view))
            self._skip -= skipped
            view = view[skipped:]
            # Process a limited number of bytes at a time. Otherwise, a long PUBLISH that arrives
            # complete would be stored as a whole.
            self._buffer += view[: PACKET_MAX_BYTES + 5]
            view = view[PACKET_MAX_BYTES + 5 :]
            while (packet := self._read_next()) is not None:
                yield packet
            if not view:
                return

    def _read_next(self) -> FromBroker | None:
        head = _read_head(self._buffer)
        if head is None:
            return None
        start, size = head
        kind, flags = self._buffer[0] >> 4, self._buffer[0] & 0x0F
        if kind != PacketType.PUBLISH and size not in _SIZES.get(kind, ()):
            # Fail at once. Otherwise, the reader would wait for the rest of data that is not from a
            # broker.
            raise RemoteProtocolError(f"a packet of type {kind} and {size} bytes makes no sense")
        if size > PACKET_MAX_BYTES:
            return self._read_next_long(flags, start, size)
        if len(self._buffer) < start + size:
            return None
        rest = bytes(self._buffer[start : start + size])
        del self._buffer[: start + size]
        return _read(kind, flags, rest)

    def _read_next_long(self, flags: int, start: int, size: int) -> Published | None:
        """Read the beginning of a PUBLISH that is too long, and skip the rest of it."""
        needed = start + 2 + TOPIC_MAX_BYTES + 2
        if len(self._buffer) < needed:
            return None
        packet = _read_publish(flags, bytes(self._buffer[start:needed]), size)
        self._skip = max(0, start + size - len(self._buffer))
        del self._buffer[: start + size]
        return packet


def _read_head(buffer: bytearray) -> tuple[int, int] | None:
    """Return the position and the length of a packet's rest, or None if more bytes are needed.
    Raises RemoteProtocolError if the length is malformed.
    """
    size = 0
    for place in range(4):
        if len(buffer) < place + 2:
            return None
        byte = buffer[place + 1]
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return place + 2, size
    raise RemoteProtocolError("the length of a packet has more than four bytes")


def _read(kind: int, flags: int, rest: bytes) -> FromBroker:
    if kind == PacketType.PUBLISH:
        return _read_publish(flags, rest, len(rest))
    if flags:
        raise RemoteProtocolError(f"a packet of type {kind} bears the flags {flags}")
    if kind == PacketType.PINGRESP:
        return Pingresp()
    if kind == PacketType.PUBACK:
        return Puback(_read_packet_number(rest))
    if kind == PacketType.CONNACK and rest[0] <= 1:
        return Connack(rest[1], bool(rest[0]))
    codes = tuple(rest[2:])
    if kind == PacketType.SUBACK and all(
        code <= 2 or code == SUBSCRIPTION_REFUSED for code in codes
    ):
        return Suback(_read_packet_number(rest), codes)
    raise RemoteProtocolError(f"a packet of type {kind} holds {rest.hex()}, which makes no sense")


def _read_publish(flags: int, beginning: bytes, size: int) -> Published:
    """Parse a PUBLISH. `beginning` is the beginning of its rest, which has `size` bytes. A payload
    that is too long is left out, and the result contains its length in `skipped`. Raises
    RemoteProtocolError for malformed data.
    """
    quality = flags >> 1 & 3
    if quality > 1:
        raise RemoteProtocolError(f"a message has QoS {quality}, which was not requested")
    length = int.from_bytes(beginning[:2])
    end = 2 + length + (2 if quality else 0)
    if length > TOPIC_MAX_BYTES or end > len(beginning):
        raise RemoteProtocolError(f"a topic of {length} bytes, in a packet of {size}")
    topic = _read_topic(beginning[2 : 2 + length])
    number = _read_packet_number(beginning[end - 2 : end]) if quality else None
    again, retained = bool(flags & 0x08), bool(flags & 0x01)
    if size > PACKET_MAX_BYTES:
        return Published(topic, b"", number, retained, again, size - end)
    return Published(topic, beginning[end:], number, retained, again)


def _read_topic(data: bytes) -> str:
    try:
        topic = data.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"a topic is not UTF-8: byte {error.start}") from None
    if not topic or any(each in topic for each in "\0#+"):
        raise RemoteProtocolError(f"{topic!r} is not a topic")
    return topic


def _read_packet_number(rest: bytes) -> int:
    """Return the number of a packet. Raises RemoteProtocolError if the number is 0 (section
    2.3.1).
    """
    number = int.from_bytes(rest[:2])
    if not number:
        raise RemoteProtocolError("a packet bears the number 0")
    return number
