"""The chunked transfer coding of a request (RFC 9112 section 7.1), parsed strictly."""

from __future__ import annotations

import re

from fieldagent.http.limits import Limits
from fieldagent.http.problem import Problem, too_large

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"'
_EXTENSION = rb"[\t ]*;[\t ]*%b(?:[\t ]*=[\t ]*(?:%b|%b))?" % (_TOKEN, _TOKEN, _QUOTED)
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]+)(?:%b)*" % _EXTENSION)
_SIZE_LINE_BYTES = 256
_BARE_LF = re.compile(rb"(?<!\r)\n")
_TRAILER = rb"%b:[\t\x20-\x7e\x80-\xff]*" % _TOKEN
_TRAILERS = re.compile(rb"(?:%b\r\n)*\r\n" % _TRAILER)
_BEGUN_TRAILERS = re.compile(rb"(?:%b\r\n)*(?:%b\r?|%b|\r)?" % (_TRAILER, _TRAILER, _TOKEN))


class ChunkedBody:
    """Collects the content of a chunked body. A chunk that is too large is refused at its size
    line.
    """

    def __init__(self, limits: Limits, most: int) -> None:
        """`most` is the maximum content in bytes."""
        self.content = bytearray()
        self._limits = limits
        self.most = most
        self._framing = 0
        self._last_seen = False

    def take(self, data: bytearray) -> bool:
        """Remove the complete parts from the front of `data`. Returns True if the body is
        complete.
        """
        while not self._last_seen:
            end = data.find(b"\r\n")
            if end < 0:
                _check_size_line_begins(data)
                return False
            size = _size(data, end)
            if size == 0:
                self._last_seen = True
                del data[:end]
            elif not self._take_chunk(data, end + 2, size):
                return False
        return self._take_trailers(data)

    def _take_chunk(self, data: bytearray, start: int, size: int) -> bool:
        if len(self.content) + size > self.most:
            raise too_large(self.most)
        end = start + size
        if len(data) < end + 2:
            return False
        if data[end : end + 2] != b"\r\n":
            raise Problem(400, "a chunk is longer than its size field (RFC 9112 7.1)")
        self._framing += start + 2
        if self._framing > self._limits.chunk_framing:
            raise Problem(413, "the chunks are too small: send fewer, larger ones")
        self.content += data[start:end]
        del data[: end + 2]
        return True

    def _take_trailers(self, data: bytearray) -> bool:
        """Check and drop the trailers, which are not used. Returns True if they are complete."""
        end = data.find(b"\r\n\r\n")
        if (len(data) if end < 0 else end) > self._limits.head:
            raise Problem(431, f"the trailers are larger than {self._limits.head} bytes")
        shape, until = (_BEGUN_TRAILERS, len(data)) if end < 0 else (_TRAILERS, end + 4)
        if not shape.fullmatch(data, 2, until):
            raise Problem(400, "a trailer is not a header line (RFC 9112 7.1.2)")
        if end < 0:
            return False
        del data[: end + 4]
        return True


def _size(data: bytearray, end: int) -> int:
    line = _SIZE_LINE.fullmatch(data, 0, end)
    if line is None or end > _SIZE_LINE_BYTES:
        raise Problem(400, "a chunk does not begin with its size (RFC 9112 7.1)")
    return int(line[1], 16)


def _check_size_line_begins(data: bytearray) -> None:
    if len(data) > _SIZE_LINE_BYTES or _BARE_LF.search(data):
        raise Problem(400, "a chunk's size line ends in LF alone or is far too long")
