"""MQTT 3.1.1 (OASIS, 29 October 2014), a client's side of it: packets to bytes and back. No I/O.

    type     from us                    from the broker
    1  2     CONNECT                    CONNACK
    3  4     PUBLISH, PUBACK            PUBLISH, PUBACK
    8  9     SUBSCRIBE                  SUBACK
    12 13    PINGREQ                    PINGRESP
    14       DISCONNECT

A packet is a byte of type and flags, the length of the rest in up to four bytes of seven bits, the
lowest first, and that rest. Quality of service is 0 or 1: we subscribe with 1 at the most, so that
a broker sends nothing of 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import RemoteProtocolError

PACKET_MAX = 65_536
"""Bytes of a packet's rest that are kept: of a longer PUBLISH the payload is skipped."""
TOPIC_MAX = 1_024
"""Bytes of a topic, of which those of the broker's may be no longer: ours are shorter."""
_REST_MAX = 268_435_455
"""Of what four bytes of seven bits can say (2.2.3)."""
REFUSED = 0x80
"""What a SUBACK says of a subscription that is refused."""


class PacketType(IntEnum):
    """Table 2.1."""

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
    """How a broker answers a CONNECT (table 3.1)."""

    ACCEPTED = 0
    VERSION = 1
    IDENTIFIER = 2
    UNAVAILABLE = 3
    CREDENTIALS = 4
    NOT_AUTHORIZED = 5


class Will(NamedTuple):
    """What the broker publishes, retained and with QoS 1, once it loses the client."""

    topic: str
    payload: bytes


class Connack(NamedTuple):
    code: int
    """Of `ConnectCode`, or one that is reserved."""
    present: bool
    """The broker has kept the session."""


class Published(NamedTuple):
    """A PUBLISH of the broker's."""

    topic: str
    payload: bytes
    """Empty where it is `skipped`."""
    number: int | None
    """By which it wants to be acknowledged; None of QoS 0."""
    retained: bool
    """It is what the broker kept, and no news."""
    again: bool = False
    """It came before, perhaps."""
    skipped: int = 0
    """The length of a payload that is too long to be looked at."""


class Puback(NamedTuple):
    number: int


class Suback(NamedTuple):
    number: int
    codes: tuple[int, ...]
    """Of each subscription the QoS, or `REFUSED`."""


class Pingresp(NamedTuple):
    """The broker is there."""


FromBroker = Connack | Published | Puback | Suback | Pingresp

_SIZES: dict[int, range] = {
    PacketType.CONNACK: range(2, 3),
    PacketType.PUBACK: range(2, 3),
    PacketType.SUBACK: range(3, 3 + 16),
    PacketType.PINGRESP: range(1),
}
"""Of the rest of what a broker sends. We subscribe to a few topics at a time."""

PINGREQ = bytes((PacketType.PINGREQ << 4, 0))
DISCONNECT = bytes((PacketType.DISCONNECT << 4, 0))
"""With which a client takes its leave: its will is not published."""


def connect(
    client: str,
    keepalive: int,
    *,
    clean: bool = False,
    will: Will | None = None,
    user: str | None = None,
    password: str | None = None,
) -> bytes:
    """Return a CONNECT. `keepalive` is in seconds. Without `clean` the broker keeps what comes for
    us while we are away. A password needs a user (3.1.2.9)."""
    flags = 0x02 if clean else 0
    payload = _text(client)
    if will is not None:
        flags |= 0x04 | 0x08 | 0x20
        payload += _text(will.topic) + _counted(will.payload)
    if user is not None:
        flags |= 0x80
        payload += _text(user)
        if password is not None:
            flags |= 0x40
            payload += _text(password)
    head = _text("MQTT") + bytes((4, flags)) + keepalive.to_bytes(2)
    return _packet(PacketType.CONNECT, 0, head + payload)


def publish(
    topic: str,
    payload: bytes,
    number: int | None = None,
    *,
    retain: bool = False,
) -> bytes:
    """Return a PUBLISH: with a `number`, from 1 to 65 535, of QoS 1; without one of QoS 0."""
    flags = int(retain) | (0 if number is None else 0x02)
    name = b"" if number is None else number.to_bytes(2)
    return _packet(PacketType.PUBLISH, flags, _text(topic) + name + payload)


def puback(number: int) -> bytes:
    """Acknowledge what came with QoS 1 under that number (MQTT 3.1.1, 3.4)."""
    return _packet(PacketType.PUBACK, 0, number.to_bytes(2))


def subscribe(number: int, filters: list[str]) -> bytes:
    """Return a SUBSCRIBE, each with QoS 1."""
    wanted = b"".join(_text(each) + b"\x01" for each in filters)
    return _packet(PacketType.SUBSCRIBE, 0x02, number.to_bytes(2) + wanted)


def _packet(kind: PacketType, flags: int, rest: bytes) -> bytes:
    return bytes((kind << 4 | flags,)) + _length(len(rest)) + rest


def _length(size: int) -> bytes:
    assert size <= _REST_MAX
    octets = bytearray()
    while True:
        size, low = divmod(size, 128)
        octets.append(low | (0x80 if size else 0))
        if not size:
            return bytes(octets)


def _text(text: str) -> bytes:
    return _counted(text.encode())


def _counted(data: bytes) -> bytes:
    return len(data).to_bytes(2) + data


class PacketReader:
    """Cuts what the broker sends into packets, with never more than a packet's worth kept.

    After RemoteProtocolError the stream makes no sense any more: close it.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skip = 0
        """Bytes that come next and are of no use."""

    def receive_data(self, data: bytes | bytearray) -> Iterator[FromBroker]:
        """Yield each packet that is whole by now. Raises RemoteProtocolError."""
        view = memoryview(bytes(data))
        while True:
            skipped = min(self._skip, len(view))
            self._skip -= skipped
            view = view[skipped:]
            # So much at a time, or one long PUBLISH would be kept whole where it came whole.
            self._buffer += view[: PACKET_MAX + 5]
            view = view[PACKET_MAX + 5 :]
            while (packet := self._next()) is not None:
                yield packet
            if not view:
                return

    def _next(self) -> FromBroker | None:
        head = _read_head(self._buffer)
        if head is None:
            return None
        start, size = head
        kind, flags = self._buffer[0] >> 4, self._buffer[0] & 0x0F
        if kind != PacketType.PUBLISH and size not in _SIZES.get(kind, ()):
            # Told at once: what is no broker would be waited for.
            raise RemoteProtocolError(f"a packet of type {kind} and {size} bytes makes no sense")
        if size > PACKET_MAX:
            return self._next_long(flags, start, size)
        if len(self._buffer) < start + size:
            return None
        rest = bytes(self._buffer[start : start + size])
        del self._buffer[: start + size]
        return _read(kind, flags, rest)

    def _next_long(self, flags: int, start: int, size: int) -> Published | None:
        """Read the beginning of a PUBLISH that is too long, and skip the rest of it."""
        needed = start + 2 + TOPIC_MAX + 2
        if len(self._buffer) < needed:
            return None
        packet = _read_publish(flags, bytes(self._buffer[start:needed]), size)
        self._skip = max(0, start + size - len(self._buffer))
        del self._buffer[: start + size]
        return packet


def _read_head(buffer: bytearray) -> tuple[int, int] | None:
    """Return where the rest of a packet begins and how long it is; None where more must come."""
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
        return Puback(_number(rest))
    if kind == PacketType.CONNACK and rest[0] <= 1:
        return Connack(rest[1], bool(rest[0]))
    codes = tuple(rest[2:])
    if kind == PacketType.SUBACK and all(code <= 2 or code == REFUSED for code in codes):
        return Suback(_number(rest), codes)
    raise RemoteProtocolError(f"a packet of type {kind} holds {rest.hex()}, which makes no sense")


def _read_publish(flags: int, beginning: bytes, size: int) -> Published:
    """`beginning` is of the rest of a packet, which has `size` bytes."""
    quality = flags >> 1 & 3
    if quality > 1:
        raise RemoteProtocolError(f"a message came with QoS {quality}, which nobody asked for")
    length = int.from_bytes(beginning[:2])
    end = 2 + length + (2 if quality else 0)
    if length > TOPIC_MAX or end > len(beginning):
        raise RemoteProtocolError(f"a topic of {length} bytes, in a packet of {size}")
    topic = _read_topic(beginning[2 : 2 + length])
    number = _number(beginning[end - 2 : end]) if quality else None
    again, retained = bool(flags & 0x08), bool(flags & 0x01)
    if size > PACKET_MAX:
        return Published(topic, b"", number, retained, again, size - end)
    return Published(topic, beginning[end:], number, retained, again)


def _read_topic(data: bytes) -> str:
    try:
        topic = data.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"a topic is not UTF-8: byte {error.start}") from None
    if not topic or any(each in topic for each in "\0#+"):
        raise RemoteProtocolError(f"{topic!r} is no topic")
    return topic


def _number(rest: bytes) -> int:
    """Return a packet's number, which is never 0 (2.3.1)."""
    number = int.from_bytes(rest[:2])
    if not number:
        raise RemoteProtocolError("a packet bears the number 0")
    return number
