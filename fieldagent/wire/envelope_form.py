"""The two forms of an encoded envelope: a CBOR array, and the short form for satellite.

In both forms, an entry is decoded as a list. `docs/reference/on-air.md` describes both, with test
vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import cbor2

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import strict_cbor
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.seal import TAG_BYTES, tag
from fieldagent.wire.strict_cbor import is_in_range, is_int
from fieldagent.wire.track import unzigzag, zigzag

VERSION = 1

_SHORT_FORM_BITS = 0xC0
"""Value of the three highest bits in the first byte of a short form. No array begins with it."""
_TAGGED, _ORIGIN, _AT_BASE, _WIDE, _LATER = 0x10, 0x08, 0x04, 0x02, 0x01
"""The other five bits. _TAGGED: the envelope ends with a tag. _ORIGIN: an origin follows the base.
_AT_BASE: the first entry is for everyone and at the base time, so the 0 after its number is left
out. _WIDE: the first number has 4 bytes. _LATER: reserved for later versions."""
_BARE, _MORE, _KIND = 0x80, 0x40, 0x3F
"""Bits of the kind byte. _BARE: the entry has two elements, and the last element is the bytes up to
the entry's end. _MORE: another entry follows. _KIND: the kind."""
_BASE_BYTES = _WIDE_BYTES = 4
_WIDE_FROM = 1 << 16
_TWO_BYTES, _LENGTH_MAX = 0x80, 0x7FFF
"""A length of this value or more has two bytes, and the highest bit set."""
_ARRAY = 4
"""Major type of an array. An array after an entry's number is the address of the entry, because no
other element is an array."""


class EnvelopeParts(NamedTuple):
    """An envelope with its entries as lists."""

    base: int
    """Base time of the envelope, in seconds since `envelope.EPOCH`."""
    origin: int
    entries: Sequence[Any]
    tagged: bool = False
    short: bool = False


def encode_array(parts: EnvelopeParts, key: bytes | None) -> bytes:
    """Encode an envelope as a CBOR array. If `key` is not None, the last element is a tag. The
    fields `tagged` and `short` of `parts` are ignored.
    """
    items = [VERSION, parts.base, parts.origin, *parts.entries]
    if key is None:
        return cbor2.dumps(items)
    plain = cbor2.dumps([*items, bytes(TAG_BYTES)])[:-TAG_BYTES]
    return plain + tag(plain, key)


def decode_form(body: bytes) -> EnvelopeParts:
    """Parse an envelope in either form. Raises RemoteProtocolError if the bytes are damaged or have
    neither form.
    """
    return _read_short(body) if body and body[0] & 0xE0 == _SHORT_FORM_BITS else _read_array(body)


def _read_array(body: bytes) -> EnvelopeParts:
    items = strict_cbor.decode_single(body)
    if not isinstance(items, list) or not items or not is_int(items[0]):
        raise RemoteProtocolError("not an envelope: no array that starts with a version")
    if items[0] != VERSION:
        raise RemoteProtocolError(f"version {items[0]} is unknown; this program knows {VERSION}")
    tagged = isinstance(items[-1], bytes) and len(items[-1]) == TAG_BYTES
    head, entries = items[1:3], items[3 : len(items) - tagged]
    if len(head) < 2 or not is_in_range(head[0]) or not is_in_range(head[1], minimum=0):
        raise RemoteProtocolError("the envelope's time or origin is damaged")
    return EnvelopeParts(head[0], head[1], entries, tagged)


def encode_short(parts: EnvelopeParts, key: bytes | None) -> bytes | None:
    """Encode an envelope in the short form. Return None if its base or the length of an entry does
    not fit.
    """
    if not is_in_range(parts.base, minimum=0):
        return None
    entries = [_split_entry(each) for each in parts.entries]
    first = entries[0]
    at_base = not first.address and is_int(first.elements[0]) and first.elements[0] == 0
    wide = is_in_range(first.number, minimum=_WIDE_FROM)
    flags = {_TAGGED: key is not None, _ORIGIN: parts.origin, _AT_BASE: at_base, _WIDE: wide}
    number = first.number.to_bytes(_WIDE_BYTES) if wide else cbor2.dumps(first.number)
    contents = [_encode_content(first, number, at_base=at_base)]
    for last, each in pairwise(entries):
        contents[-1][0] |= _MORE
        contents.append(_encode_content(each, _encode_step(each.number, last.number)))
    if any(len(each) > _LENGTH_MAX for each in contents):
        return None
    head = bytes([_SHORT_FORM_BITS | sum(flag for flag, is_set in flags.items() if is_set)])
    head += parts.base.to_bytes(_BASE_BYTES) + (cbor2.dumps(parts.origin) if parts.origin else b"")
    plain = head + b"".join(_encode_length(len(each)) + each for each in contents)
    return plain if key is None else plain + tag(plain, key)


class _Entry(NamedTuple):
    kind: int
    number: int
    address: list[Any]
    elements: list[Any]
    """Elements after the number."""


def _split_entry(entry: Sequence[Any]) -> _Entry:
    (kind, number, *elements), *address = entry if isinstance(entry[0], list) else [entry]
    return _Entry(kind, number, address, elements)


def _encode_content(entry: _Entry, number: bytes, *, at_base: bool = False) -> bytearray:
    elements = entry.elements
    is_plain = len(elements) == 2 and isinstance(elements[1], bytes)
    members = elements[at_base : 1 if is_plain else None]
    content = bytearray([entry.kind | is_plain * _BARE]) + number
    content += cbor2.dumps(entry.address) if entry.address else b""
    return content + b"".join(map(cbor2.dumps, members)) + (elements[1] if is_plain else b"")


def _encode_step(number: int, previous: int) -> bytes:
    """Return the shorter of two forms: the number itself, or its difference to `previous` as a
    negative number.
    """
    return min(cbor2.dumps(number), cbor2.dumps(-1 - zigzag(number - previous)), key=len)


def _encode_length(size: int) -> bytes:
    return bytes([size]) if size < _TWO_BYTES else (size | _TWO_BYTES << 8).to_bytes(2)


def _read_short(body: bytes) -> EnvelopeParts:
    flags = body[0]
    if flags & _LATER:
        raise RemoteProtocolError("an unknown short form")
    tagged = bool(flags & _TAGGED)
    data = body[: len(body) - TAG_BYTES] if tagged else body
    base, at = _read_whole_number(data, 1, _BASE_BYTES)
    origin, at = strict_cbor.decode_item(data, at) if flags & _ORIGIN else (0, at)
    if not is_in_range(origin, minimum=0):
        raise RemoteProtocolError("the envelope's origin is damaged")
    entries: list[list[Any]] = []
    before: int | None = None
    for content in _split_contents(data, at):
        first = before is None
        before, at = _read_number(content, before, is_wide=first and bool(flags & _WIDE))
        address, elements = _read_elements(
            content[at:], bare=bool(content[0] & _BARE), at_base=first and bool(flags & _AT_BASE)
        )
        entry = [content[0] & _KIND, before, *elements]
        entries.append([entry, *address] if address else entry)
    return EnvelopeParts(base, origin, entries, tagged, short=True)


def _split_contents(data: bytes, offset: int) -> Iterator[bytes]:
    """Yield the bytes of each entry without its length, from the index `offset` of `data`. Raises
    RemoteProtocolError if an entry is incomplete.
    """
    has_more = True
    while has_more:
        two = data[offset : offset + 1] >= bytes([_TWO_BYTES])
        length, offset = _read_whole_number(data, offset, 2 if two else 1)
        length &= _LENGTH_MAX
        if not 0 < length <= len(data) - offset:
            raise RemoteProtocolError("a short form that ends in the middle of an entry")
        yield data[offset : offset + length]
        has_more = bool(data[offset] & _MORE)
        offset += length
    if offset < len(data):
        raise RemoteProtocolError(f"a short form with {len(data) - offset} bytes behind it")


def _read_number(content: bytes, previous: int | None, *, is_wide: bool) -> tuple[int, int]:
    """Return an entry's sequence number, and the index of the byte after the number."""
    if is_wide:
        return _read_whole_number(content, 1, _WIDE_BYTES)
    number, at = strict_cbor.decode_item(content, 1)
    if not is_int(number) or (number < 0 and previous is None):
        raise RemoteProtocolError("a number is missing in a short form")
    return (number if previous is None or number >= 0 else previous + unzigzag(-1 - number)), at


def _read_elements(data: bytes, *, bare: bool, at_base: bool) -> tuple[list[Any], list[Any]]:
    """Return the address of an entry (empty if there is none), and its elements after the number.
    `data` contains the bytes after the number. `bare` and `at_base` are the flags _BARE and
    _AT_BASE.
    """
    addressed = not at_base and data[:1] and data[0] >> 5 == _ARRAY
    address, at = strict_cbor.decode_item(data, 0) if addressed else ([], 0)
    elements: list[Any] = [0] if at_base else []
    while at < len(data) and not (bare and elements):
        element, at = strict_cbor.decode_item(data, at)
        elements.append(element)
    return address, [*elements, data[at:]] if bare else elements


def _read_whole_number(data: bytes, offset: int, size: int) -> tuple[int, int]:
    if len(data) < offset + size:
        raise RemoteProtocolError("a short form that ends in the middle of a number")
    return int.from_bytes(data[offset : offset + size]), offset + size
