"""The part of Protocol Buffers that radios use: proto3 messages of scalars, bytes and messages.

A `ProtobufSchema` lists the members of a message that we need. Other members are skipped, because
later versions may add fields. Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import Enum
from math import isfinite
from typing import Any, Generic, TypeAlias, TypeVar

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError

Message = TypeVar("Message", bound=NamedTuple)
VARINT, EIGHT_BYTES, COUNTED, FOUR_BYTES = 0, 1, 2, 5
"""Wire types. 3 and 4 (groups) belong to proto2 and are not used."""
VARINT_BYTES = 10


class Scalar(Enum):
    """Encoding of a message's scalar field."""

    UNSIGNED = "uint32, uint64, enum"
    SIGNED = "int32: below zero it takes ten bytes"
    BOOL = "bool"
    FIXED = "fixed32"
    SIGNED_FIXED = "sfixed32"
    FLOAT = "float"
    BYTES = "bytes"
    TEXT = "string"


WIRE_TYPES = {
    Scalar.UNSIGNED: VARINT,
    Scalar.SIGNED: VARINT,
    Scalar.BOOL: VARINT,
    Scalar.FIXED: FOUR_BYTES,
    Scalar.SIGNED_FIXED: FOUR_BYTES,
    Scalar.FLOAT: FOUR_BYTES,
    Scalar.BYTES: COUNTED,
    Scalar.TEXT: COUNTED,
}
FOUR_BYTE_FORMATS = {Scalar.FIXED: "<I", Scalar.SIGNED_FIXED: "<i", Scalar.FLOAT: "<f"}
Kind: TypeAlias = "Scalar | ProtobufSchema[Any]"


class ProtobufSchema(Generic[Message]):
    """Reads and writes one kind of message as a named tuple, in which each member has a default.

    `members` contains the number and kind of each member, by name. A member with its default value
    is not written. If the default is None, a member is also written if it is 0, like a member of a
    oneof.
    """

    def __init__(self, message: type[Message], /, **members: tuple[int, Kind]) -> None:
        self._message = message
        self._members = members
        self._by_number = {number: (name, kind) for name, (number, kind) in members.items()}
        self._defaults: dict[str, Any] = message._field_defaults

    def encode(self, message: Message) -> bytes:
        """Encode a message. Raises LocalProtocolError if a member does not fit its kind."""
        encoded = bytearray()
        for name, (number, kind) in self._members.items():
            value = getattr(message, name)
            if value != self._defaults[name]:
                encoded += _encode_member(number, kind, value)
        return bytes(encoded)

    def decode(self, data: bytes) -> Message:
        """Decode a message. Raises RemoteProtocolError for malformed data. If a member occurs
        twice, the last value is used. A float that is not finite, or a member with an unexpected
        wire type, is treated as missing.
        """
        members: dict[str, Any] = {}
        for number, wire_type, raw in _read_members(data):
            name, kind = self._by_number.get(number, ("", Scalar.BYTES))
            if name and wire_type == _get_wire_type(kind):
                value = _read_value(kind, raw)
                # A failed measurement results in a value that is not finite, which cannot be
                # rounded or written as JSON.
                if kind is not Scalar.FLOAT or isfinite(value):
                    members[name] = value
        make_message: Callable[..., Message] = self._message
        return make_message(**members)


def _get_wire_type(kind: Kind) -> int:
    return COUNTED if isinstance(kind, ProtobufSchema) else WIRE_TYPES[kind]


def _encode_member(number: int, kind: Kind, value: Any) -> bytes:
    if isinstance(kind, ProtobufSchema):
        return _encode_counted(number, kind.encode(value))
    if kind is Scalar.TEXT:
        return _encode_counted(number, value.encode())
    if kind is Scalar.BYTES:
        return _encode_counted(number, value)
    if kind in FOUR_BYTE_FORMATS:
        try:
            return _encode_varint(number << 3 | FOUR_BYTES) + struct.pack(
                FOUR_BYTE_FORMATS[kind], value
            )
        except struct.error as error:
            raise LocalProtocolError(f"{value} is no {kind.value}: {error}") from None
    return _encode_varint(number << 3 | VARINT) + _encode_varint(int(value))


def _encode_counted(number: int, content: bytes) -> bytes:
    return _encode_varint(number << 3 | COUNTED) + _encode_varint(len(content)) + content


def _encode_varint(value: int) -> bytes:
    rest = value & 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _read_members(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield the number, the wire type and the content of each member of a message."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if not number:
            raise RemoteProtocolError("a member has the number 0")
        if wire_type == VARINT:
            value, position = _read_varint(data, position)
            yield number, wire_type, value
            continue
        size = {EIGHT_BYTES: 8, FOUR_BYTES: 4}.get(wire_type)
        if wire_type == COUNTED:
            size, position = _read_varint(data, position)
        if size is None:
            raise RemoteProtocolError(f"member {number} has the wire type {wire_type}")
        if size > len(data) - position:
            raise RemoteProtocolError(f"member {number} is cut off")
        yield number, wire_type, data[position : position + size]
        position += size


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(VARINT_BYTES):
        if position + index >= len(data):
            raise RemoteProtocolError("a number is cut off")
        byte = data[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position + index + 1
    raise RemoteProtocolError("a number has more than ten bytes")


def _read_value(kind: Kind, data: int | bytes) -> Any:
    if isinstance(kind, ProtobufSchema):
        assert isinstance(data, bytes)
        return kind.decode(data)
    if isinstance(data, int):
        return _convert_number(kind, data)
    if kind is Scalar.TEXT:
        # Third-party texts are only displayed, so replace invalid UTF-8 with U+FFFD.
        return data.decode("utf-8", "replace")
    return struct.unpack(FOUR_BYTE_FORMATS[kind], data)[0] if kind in FOUR_BYTE_FORMATS else data


def _convert_number(kind: Scalar, data: int) -> int | bool:
    if kind is Scalar.BOOL:
        return bool(data)
    low = data & 0xFFFF_FFFF
    return low - 2**32 if kind is Scalar.SIGNED and low >= 2**31 else low
