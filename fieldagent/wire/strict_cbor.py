"""CBOR (RFC 8949) as every format here uses it: definite lengths, 64-bit integers, and no tags.

A decoder of all of it makes whatever a tag asks for of a stranger's bytes: patterns, fractions,
integers of 500 000 bits, structures that hold themselves. This one refuses what is not used here.
"""

from __future__ import annotations

import struct
from typing import Any

from fieldagent.wire.errors import RemoteProtocolError

DEPTH_MAX = 16
ITEMS_MAX = 40_000
"""A message of 64 KiB is full with 3 000 positions of 9 items each."""

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG = range(7)
"""Major types (3.1)."""
_SIMPLE = {False: 0xF4, True: 0xF5, None: 0xF6}
_SIMPLE_OF = {initial: value for value, initial in _SIMPLE.items()}
_FLOATS = {0xF9: ">e", 0xFA: ">f", 0xFB: ">d"}
"""By initial byte."""


def dumps(value: Any) -> bytes:
    """Each number and length in the fewest bytes. No format here writes a map or a float."""
    written = bytearray()
    _write(value, written)
    return bytes(written)


def _write(value: Any, to: bytearray) -> None:
    if value is None or value is True or value is False:
        to.append(_SIMPLE[value])
    elif isinstance(value, int):
        if value < 0:
            _write_head(_NEGATIVE, -1 - value, to)
        else:
            _write_head(_UNSIGNED, value, to)
    elif isinstance(value, bytes):
        _write_head(_BYTES, len(value), to)
        to += value
    elif isinstance(value, str):
        text = value.encode()
        _write_head(_TEXT, len(text), to)
        to += text
    elif isinstance(value, (list, tuple)):
        _write_head(_ARRAY, len(value), to)
        for each in value:
            _write(each, to)
    else:
        raise TypeError(f"no format here has a {type(value).__name__}")


def _write_head(major: int, number: int, to: bytearray) -> None:
    """Raises OverflowError for what 64 bits do not hold."""
    if number < 24:
        to.append(major << 5 | number)
        return
    size = 1 if number < 1 << 8 else 2 if number < 1 << 16 else 4 if number < 1 << 32 else 8
    to.append(major << 5 | 23 + size.bit_length())
    to += number.to_bytes(size, "big")


def loads(data: bytes) -> Any:
    """The first item in `data`. Raises RemoteProtocolError."""
    try:
        return _Reader(data).item(0)
    except IndexError:
        raise RemoteProtocolError("not CBOR: it ends in the middle of an item") from None
    except (UnicodeDecodeError, TypeError) as error:
        # A text that is no UTF-8; an array or map as a key of a map.
        raise RemoteProtocolError(f"not CBOR of ours: {error}") from error


class _Reader:
    __slots__ = ("at", "data", "left")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.left = ITEMS_MAX
        """Items that may still come."""

    def item(self, depth: int) -> Any:
        """The next; `depth` is in how many arrays and maps. Raises IndexError at the end."""
        self.left -= 1
        if self.left < 0:
            raise RemoteProtocolError(f"not CBOR of ours: more than {ITEMS_MAX} items")
        initial = self.data[self.at]
        self.at += 1
        major, number = initial >> 5, initial & 0x1F
        if major >= _TAG:
            return self.other(initial)
        if number > 23:
            number = int.from_bytes(self.take(_size(initial)), "big")
        if major <= _NEGATIVE:
            return number if major == _UNSIGNED else -1 - number
        if major <= _TEXT:
            content = self.take(number)
            return content if major == _BYTES else content.decode()
        if depth == DEPTH_MAX:
            raise RemoteProtocolError(f"not CBOR of ours: nested deeper than {DEPTH_MAX}")
        if major == _ARRAY:
            return [self.item(depth + 1) for _ in range(number)]
        return {self.item(depth + 1): self.item(depth + 1) for _ in range(number)}

    def other(self, initial: int) -> Any:
        if initial in _SIMPLE_OF:
            return _SIMPLE_OF[initial]
        if initial not in _FLOATS:
            raise _refused(initial)
        return struct.unpack(_FLOATS[initial], self.take(_size(initial)))[0]

    def take(self, size: int) -> bytes:
        begin, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise IndexError
        return self.data[begin : self.at]


def _size(initial: int) -> int:
    """Bytes of its argument behind an initial byte."""
    if (short := initial & 0x1F) > 27:
        raise _refused(initial)
    return 1 << short - 24


def _refused(initial: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"not CBOR of ours: initial byte {initial:#04x}")
