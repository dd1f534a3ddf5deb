"""The part of CBOR (RFC 8949) that our formats use: definite lengths, 64-bit integers, and no tags.
Also checks the members that a peer has sent.

A general decoder would build everything that tags in untrusted bytes request: patterns, fractions,
integers of 500 000 bits, or structures that contain themselves. So all unused features are refused
before the decoding.
"""

from __future__ import annotations

from typing import Any

import cbor2

from fieldagent.wire.errors import RemoteProtocolError

DEPTH_MAX = 16
ITEMS_MAX = 40_000
"""Maximum number of items. A message of 64 KiB can contain 3 000 positions of 9 items each."""

_BYTES, _TEXT, _MAP = 2, 3, 5
_EXTRA = {24: 1, 25: 2, 26: 4, 27: 8}
"""Number of bytes of the argument that follows an initial byte, by the lowest five bits of the
initial byte."""
_SCALAR = {
    (major << 5) + info: 1 + _EXTRA.get(info, 0) for major in (0, 1) for info in range(28)
} | {0xF4: 1, 0xF5: 1, 0xF6: 1, 0xF9: 3, 0xFA: 5, 0xFB: 9}
"""Size in bytes of an integer, false, true, null or float by its initial byte."""


def decode_single(data: bytes) -> Any:
    """Decode the single item in `data`. Raises RemoteProtocolError if the bytes are invalid, or if
    more bytes follow the item.
    """
    item, end = decode_item(data, 0)
    if end < len(data):
        raise RemoteProtocolError(
            f"not CBOR of this protocol: {len(data) - end} bytes behind the one item"
        )
    return item


def decode_item(data: bytes, start: int) -> tuple[Any, int]:
    """Return the item that begins at the index `start`, and the index of the byte after the item.
    Raises RemoteProtocolError for malformed data.
    """
    end = _find_end(data, start)
    try:
        return cbor2.loads(data[start:end]), end
    except Exception as error:
        # cbor2 also raises other errors, for text that is not UTF-8 and for maps with arrays as
        # keys.
        raise RemoteProtocolError(f"not CBOR: {error}") from error


def _find_end(data: bytes, offset: int) -> int:
    items = 0
    missing = [1]
    """Number of items still missing in each open array, the innermost last."""
    while missing:
        if not missing[-1]:
            missing.pop()
            continue
        if offset >= len(data):
            raise RemoteProtocolError("not CBOR: it ends in the middle of an item")
        missing[-1] -= 1
        items += 1
        if items > ITEMS_MAX:
            raise RemoteProtocolError(f"not CBOR of this protocol: more than {ITEMS_MAX} items")
        size = _SCALAR.get(data[offset])
        if size is not None:
            offset += size
            continue
        major, length, offset = _read_head(data, offset)
        if major in (_BYTES, _TEXT):
            offset += length
        elif len(missing) > DEPTH_MAX:
            raise RemoteProtocolError(f"not CBOR of this protocol: nested deeper than {DEPTH_MAX}")
        else:
            missing.append(length * (2 if major == _MAP else 1))
    if offset > len(data):
        raise RemoteProtocolError("not CBOR: it ends in the middle of an item")
    return offset


def _read_head(data: bytes, offset: int) -> tuple[int, int, int]:
    """Return the major type and the length of an item, and the start of its content."""
    major, length = data[offset] >> 5, data[offset] & 0x1F
    if not _BYTES <= major <= _MAP or length > 27:
        raise RemoteProtocolError(f"not CBOR of this protocol: initial byte {data[offset]:#04x}")
    argument_start = offset + 1 + _EXTRA.get(length, 0)
    if length in _EXTRA:
        length = int.from_bytes(data[offset + 1 : argument_start], "big")
    return major, length, argument_start


def is_int(value: Any) -> bool:
    """Return True if the value is an integer, but not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_in_range(value: Any, *, minimum: int = -(2**32), maximum: int = 2**32 - 1) -> bool:
    """Return True if the value is an integer in the range, by default the range of 4 bytes in
    CBOR.
    """
    return is_int(value) and minimum <= value <= maximum


def expect(condition: bool, missing_part: str) -> None:
    """Raise ValueError if `condition` is False. The message states that `missing_part` is
    missing.
    """
    if not condition:
        raise ValueError(f"{missing_part} is missing")


def read_text(value: Any) -> str:
    """Return a text member. Raises ValueError for any other value."""
    expect(isinstance(value, str), "text")
    return str(value)


def read_bytes(value: Any) -> bytes:
    """Return a byte string member. Raises ValueError for any other value."""
    expect(isinstance(value, bytes), "bytes")
    return bytes(value)
