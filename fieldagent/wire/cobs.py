"""Consistent Overhead Byte Stuffing (Cheshire and Baker, 1997): frames without a zero byte.

A zero ends each frame and begins the next, so that a receiver that joins in the middle, or lost a
byte, is right again at the next zero.
"""

from __future__ import annotations

from collections.abc import Iterator

from fieldagent.wire.errors import RemoteProtocolError

DELIMITER = b"\x00"
_RUN = 254
"""Most bytes that one length byte can cover."""


def encode(frame: bytes) -> bytes:
    """Return the frame without zeros and without delimiter: 1 byte longer, and 1 more for each
    254."""
    coded = bytearray()
    for part in frame.split(DELIMITER):
        while len(part) >= _RUN:
            coded += b"\xff" + part[:_RUN]
            part = part[_RUN:]
        coded.append(len(part) + 1)
        coded += part
    return bytes(coded)


def decode(coded: bytes) -> bytes:
    """Decode a frame. Raises RemoteProtocolError for what `encode` cannot have made."""
    frame = bytearray()
    at = 0
    while at < len(coded):
        length = coded[at]
        run = coded[at + 1 : at + length]
        if length == 0 or len(run) != length - 1 or 0 in run:
            raise RemoteProtocolError("a COBS frame that is cut short")
        frame += run
        at += length
        if length <= _RUN and at < len(coded):
            frame.append(0)
    return bytes(frame)


class CobsDeframer:
    """Cuts a stream at its zeros. What grows beyond `limit` bytes is dropped up to the next one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._coded = bytearray()
        self.overlong = 0
        """How many frames were too long."""

    def receive_data(self, data: bytes) -> Iterator[bytes]:
        """Yield the coded frames that this completes; empty ones are nothing."""
        *ended, rest = data.split(DELIMITER)
        for piece in ended:
            self._take(piece)
            coded, self._coded = bytes(self._coded), bytearray()
            if len(coded) > self._limit:
                self.overlong += 1
            elif coded:
                yield coded
        self._take(rest)

    def _take(self, piece: bytes) -> None:
        # One byte beyond the limit tells that it was exceeded.
        self._coded += piece[: self._limit + 1 - len(self._coded)]
