"""Compact form of the text with which a kit answers a command, and the text of any answer.

| bytes | |
|---|---|
| 1 | 0: UTF-8 as it is; 1: raw DEFLATE (RFC 1951) |
| rest | the text |
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from fieldagent.package.package import CommandAnswer, CommandOutcome
from fieldagent.wire import kit_status
from fieldagent.wire.command import VERB_BY_NAME
from fieldagent.wire.errors import RemoteProtocolError

STATUS = VERB_BY_NAME["status"].number
PLAIN, DEFLATED = b"\0", b"\1"
PART_MIN = 8
"""A truncated line has more characters than this number. A shorter part of a line is left out."""
TEXT_MAX_BYTES = 65_536
"""Maximum bytes of a decompressed answer."""


def pack(text: str) -> bytes:
    """Encode the text in the shorter of both forms. Characters that UTF-8 cannot encode become
    question marks.
    """
    plain = text.encode("utf-8", "replace")
    maker = zlib.compressobj(9, wbits=-15)
    deflated = maker.compress(plain) + maker.flush()
    return DEFLATED + deflated if len(deflated) < len(plain) else PLAIN + plain


def pack_lines(lines: Sequence[str], size: int) -> bytes:
    """Encode as many of the first lines as fit into `size` bytes, and as much of the next line as
    fits.
    """
    fit = _find_most(lambda count: lines[:count], len(lines), size)
    answer = list(lines[:fit])
    if fit < len(lines):
        line = lines[fit]
        part = _find_most(lambda length: [*answer, line[:length] + "…"], len(line), size)
        answer += [line[:part] + "…"] if part > PART_MIN else []
    return pack("\n".join(answer))


def pack_last(lines: Sequence[str], size: int) -> bytes:
    """Encode as many of the last lines as fit into `size` bytes, in their order."""
    fit = _find_most(lambda count: lines[len(lines) - count :], len(lines), size)
    return pack("\n".join(lines[len(lines) - fit :]))


def _find_most(select: Callable[[int], Sequence[str]], maximum: int, size: int) -> int:
    """Return the largest number up to `maximum` for which the packed `select` fits into `size`
    bytes, or 0 if none fits.
    """
    low, high = 0, maximum
    while low < high:
        middle = (low + high + 1) // 2
        does_fit = len(pack("\n".join(select(middle)))) <= size
        low, high = (middle, high) if does_fit else (low, middle - 1)
    return low


def unpack(body: bytes) -> str:
    """Return the text of an answer. Raises RemoteProtocolError for malformed data."""
    form, rest = body[:1], body[1:]
    if form == PLAIN:
        return rest.decode("utf-8", "replace")
    if form != DEFLATED:
        raise RemoteProtocolError("the text of an answer has an unknown format")
    reader = zlib.decompressobj(wbits=-15)
    try:
        plain = reader.decompress(rest, TEXT_MAX_BYTES)
    except zlib.error as error:
        raise RemoteProtocolError(f"the text of an answer is damaged: {error}") from None
    if not reader.eof:
        raise RemoteProtocolError("the text of an answer is cut short, or too long")
    return plain.decode("utf-8", "replace")


def format_answer(verb: int, answer: CommandAnswer) -> str:
    """Return the answer to a command as lines of text for people. If the answer cannot be read, the
    text says so.
    """
    try:
        if verb == STATUS and answer.outcome is CommandOutcome.DONE:
            return "\n".join(kit_status.format_lines(kit_status.decode(answer.body)))
        return unpack(answer.body)
    except RemoteProtocolError as error:
        return f"{len(answer.body)} bytes that cannot be read: {error}"
