"""Iridium DirectIP between the operator's gateway and a hub: TCP, big-endian, one message in each
direction.

A message has a version, a length, and information elements in any order. Unknown elements are
skipped. Names and numbers are those of the SBD DirectIP interface description.
"""

from __future__ import annotations

import struct
from enum import IntFlag

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError

VERSION = 1
PORT = 10800
"""Usual TCP port of the hub."""
MESSAGE_MAX_BYTES = 4_096
"""Maximum bytes of a message's elements. The largest MO message of any modem, 1960 bytes, fits."""

_HEAD = struct.Struct(">BH")
_ELEMENT = struct.Struct(">BH")
_MO_HEADER = struct.Struct(">I15sBHHI")
_MO_LOCATION = struct.Struct(">BBHBHI")
_MT_HEADER = struct.Struct(">I15sH")
_MT_CONFIRMATION = struct.Struct(">I15sIh")

MO_HEADER, MO_PAYLOAD, MO_LOCATION, MO_CONFIRMATION = 0x01, 0x02, 0x03, 0x05
MT_HEADER, MT_PAYLOAD, MT_CONFIRMATION = 0x41, 0x42, 0x44


class Flags(IntFlag):
    """Disposition flags of an MT message."""

    FLUSH = 1
    RING_ONLY = 2
    LOCATION = 8
    PRIORITY = 16
    ASSIGN_MTMSN = 32


@dataclass(frozen=True, slots=True)
class MoLocation:
    """Position of the modem, as estimated by the gateway."""

    latitude: float
    longitude: float
    radius: int
    """Radius in kilometres (circular error probable, CEP)."""


@dataclass(frozen=True, slots=True)
class DirectIpMo:
    """A message from a modem, as the gateway delivers it."""

    reference: int
    """The gateway's number of the session (CDR reference)."""
    imei: str
    status: int
    """Status of the session. 0 to 2 mean success."""
    momsn: int
    mtmsn: int
    time: int
    """Unix time of the session in seconds."""
    payload: bytes | None = None
    """Message, or None for a mailbox check."""
    location: MoLocation | None = None


@dataclass(frozen=True, slots=True)
class DirectIpMt:
    """One message from the hub to a modem, in the DirectIP format."""

    client_id: int
    imei: str
    payload: bytes | None
    """The message. None if the flag `RING_ONLY` is set."""
    flags: int = 0
    """Disposition flags, a value of `Flags`."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Result of a `DirectIpMt`.

    A `status` from 0 to 50 is the message's place in the modem's queue. A negative status means
    that the message was not accepted.
    """

    client_id: int
    imei: str
    reference: int
    status: int


def extract_message(buffer: bytearray) -> bytes | None:
    """Remove the first message from `buffer`, and return its elements. Return None if more bytes
    are needed.

    Raises RemoteProtocolError for malformed data.
    """
    if buffer and buffer[0] != VERSION:
        raise RemoteProtocolError(f"not DirectIP: it begins with {buffer[0]}")
    if len(buffer) < _HEAD.size:
        return None
    _, length = _HEAD.unpack_from(buffer)
    if length > MESSAGE_MAX_BYTES:
        raise RemoteProtocolError(
            f"a message of {length} bytes; at most {MESSAGE_MAX_BYTES} are accepted"
        )
    end = _HEAD.size + length
    if len(buffer) < end:
        return None
    elements = bytes(buffer[_HEAD.size : end])
    del buffer[:end]
    return elements


def parse_mobile_originated(elements: bytes) -> DirectIpMo:
    """Parse a mobile-originated message. Raises RemoteProtocolError for malformed data."""
    contents = _split(elements)
    reference, imei, status, momsn, mtmsn, time = _unpack(_MO_HEADER, contents, MO_HEADER)
    payload = contents.get(MO_PAYLOAD)
    location = _read_location(contents)
    return DirectIpMo(reference, _read_imei(imei), status, momsn, mtmsn, time, payload, location)


def salvage_payload(elements: bytes) -> tuple[str, bytes]:
    """Return the IMEI and the payload of an MO message that `parse_mobile_originated` refuses.

    The IMEI is empty if no header contains it. If no element is readable as a payload, all bytes
    are returned as the payload.
    """
    imei, payload, at = "", b"", 0
    while at + _ELEMENT.size <= len(elements):
        id_, length = _ELEMENT.unpack_from(elements, at)
        at += _ELEMENT.size
        content = elements[at : at + length]
        at += length
        if id_ == MO_PAYLOAD:
            payload = payload or content
        elif id_ == MO_HEADER and len(content) >= 19 and content[4:19].isdigit():
            imei = content[4:19].decode("ascii")
    return imei, payload if payload or at == len(elements) else elements


def parse_mobile_terminated(elements: bytes) -> DirectIpMt:
    """Parse a mobile-terminated message. Raises RemoteProtocolError for malformed data."""
    contents = _split(elements)
    client_id, imei, flags = _unpack(_MT_HEADER, contents, MT_HEADER)
    return DirectIpMt(client_id, _read_imei(imei), contents.get(MT_PAYLOAD), flags)


def parse_confirmation(elements: bytes) -> Confirmation:
    """Parse the confirmation of an MT message. Raises RemoteProtocolError for malformed data."""
    client_id, imei, reference, status = _unpack(
        _MT_CONFIRMATION, _split(elements), MT_CONFIRMATION
    )
    return Confirmation(client_id, _read_imei(imei), reference, status)


def parse_mo_confirmation(elements: bytes) -> bool:
    """Return True if the hub has accepted the MO message. Raises RemoteProtocolError for malformed
    data.
    """
    return _unpack(struct.Struct(">B"), _split(elements), MO_CONFIRMATION)[0] == 1


def encode_message(message: DirectIpMo | DirectIpMt | Confirmation) -> bytes:
    """Encode a message with its header, for the connection. Raises LocalProtocolError if the IMEI
    does not have 15 digits.
    """
    if isinstance(message, DirectIpMo):
        m = message
        header = (m.reference, _encode_imei(m.imei), m.status, m.momsn, m.mtmsn, m.time)
        elements = [(MO_HEADER, _MO_HEADER.pack(*header))]
        if message.payload is not None:
            elements.append((MO_PAYLOAD, message.payload))
        if message.location is not None:
            elements.append((MO_LOCATION, _encode_location(message.location)))
    elif isinstance(message, DirectIpMt):
        packed = _MT_HEADER.pack(message.client_id, _encode_imei(message.imei), message.flags)
        elements = [(MT_HEADER, packed)]
        if message.payload is not None:
            elements.append((MT_PAYLOAD, message.payload))
    else:
        c = message
        packed = _MT_CONFIRMATION.pack(c.client_id, _encode_imei(c.imei), c.reference, c.status)
        elements = [(MT_CONFIRMATION, packed)]
    return _join(elements)


def encode_mo_confirmation(is_accepted: bool) -> bytes:
    """Return the hub's confirmation of an MO message. If `is_accepted` is False, the gateway
    delivers the message again.
    """
    return _join([(MO_CONFIRMATION, bytes([is_accepted]))])


def _join(elements: list[tuple[int, bytes]]) -> bytes:
    body = b"".join(_ELEMENT.pack(id_, len(content)) + content for id_, content in elements)
    return _HEAD.pack(VERSION, len(body)) + body


def _split(elements: bytes) -> dict[int, bytes]:
    contents: dict[int, bytes] = {}
    at = 0
    while at < len(elements):
        if len(elements) - at < _ELEMENT.size:
            raise RemoteProtocolError("an information element is cut short")
        id_, length = _ELEMENT.unpack_from(elements, at)
        at += _ELEMENT.size
        if len(elements) - at < length:
            raise RemoteProtocolError(f"information element {id_:#04x} is cut short")
        contents[id_] = elements[at : at + length]
        at += length
    return contents


def _unpack(shape: struct.Struct, contents: dict[int, bytes], id_: int) -> tuple[int, ...]:
    content = contents.get(id_)
    if content is None or len(content) != shape.size:
        size = "missing" if content is None else f"{len(content)} bytes long"
        raise RemoteProtocolError(f"information element {id_:#04x} is {size}")
    return shape.unpack(content)


_WEST, _SOUTH, _FORMAT = 0x01, 0x02, 0x0C
"""Bits of a location's first byte: the two hemispheres, and the format. The only format is 0."""


def _read_location(contents: dict[int, bytes]) -> MoLocation | None:
    """Return the location, or None if it is missing or impossible. The message is valid without a
    location.
    """
    content = contents.get(MO_LOCATION, b"")
    if len(content) != _MO_LOCATION.size:
        return None
    flags, north, north_minutes, east, east_minutes, radius = _MO_LOCATION.unpack(content)
    latitude = north + north_minutes / 60_000
    longitude = east + east_minutes / 60_000
    if flags & _FORMAT or latitude > 90 or longitude > 180:
        return None
    return MoLocation(
        round(-latitude if flags & _SOUTH else latitude, 5),
        round(-longitude if flags & _WEST else longitude, 5),
        radius,
    )


def _encode_location(location: MoLocation) -> bytes:
    north, north_minutes = divmod(round(abs(location.latitude) * 60_000), 60_000)
    east, east_minutes = divmod(round(abs(location.longitude) * 60_000), 60_000)
    flags = _SOUTH * (location.latitude < 0) | _WEST * (location.longitude < 0)
    return _MO_LOCATION.pack(flags, north, north_minutes, east, east_minutes, location.radius)


def _read_imei(data: bytes | int) -> str:
    assert isinstance(data, bytes)
    if not data.isdigit():
        raise RemoteProtocolError(f"{data!r} is not an IMEI")
    return data.decode("ascii")


def _encode_imei(imei: str) -> bytes:
    if len(imei) != 15 or not imei.isascii() or not imei.isdigit():
        raise LocalProtocolError(f"an IMEI has 15 digits, unlike {imei!r}")
    return imei.encode("ascii")
