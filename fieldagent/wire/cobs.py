"""Consistent Overhead Byte Stuffing (Cheshire and Baker, 1997): frames without a zero byte.

A zero byte separates two frames. So a receiver that starts in the middle of a frame, or loses a
byte, is synchronised again at the next zero byte.
"""

from __future__ import annotations

from collections.abc import Iterator

from fieldagent.wire.errors import RemoteProtocolError

DELIMITER = b"\x00"
_RUN_BYTES = 254
"""Maximum bytes after one length byte."""


def encode(frame: bytes) -> bytes:
    """Return the coded frame, which contains no zero bytes and has no delimiter. It is 1 byte
    longer than the frame, plus 1 byte for every 254 bytes.
    """
    coded = bytearray()
    for part in frame.split(DELIMITER):
        while len(part) >= _RUN_BYTES:
            coded += b"\xff" + part[:_RUN_BYTES]
            part = part[_RUN_BYTES:]
        coded.append(len(part) + 1)
        coded += part
    return bytes(coded)


def decode(coded: bytes) -> bytes:
    """Decode a frame. Raises RemoteProtocolError if `encode` cannot have produced it."""
    frame = bytearray()
    at = 0
    while at < len(coded):
        length = coded[at]
        run = coded[at + 1 : at + length]
        if length == 0 or len(run) != length - 1 or 0 in run:
            raise RemoteProtocolError("a COBS frame that is cut short")
        frame += run
        at += length
        if length <= _RUN_BYTES and at < len(coded):
            frame.append(0)
    return bytes(frame)


class CobsDeframer:
    """Splits a stream into frames at its zero bytes. A frame of more than `limit` bytes is
    dropped.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._coded = bytearray()
        self.overlong = 0
        """Number of frames that were too long."""

    def receive_data(self, data: bytes) -> Iterator[bytes]:
        """Yield the coded frames that these bytes complete. Empty frames are skipped."""
        *complete_frames, rest = data.split(DELIMITER)
        for piece in complete_frames:
            self._append_bounded(piece)
            coded, self._coded = bytes(self._coded), bytearray()
            if len(coded) > self._limit:
                self.overlong += 1
            elif coded:
                yield coded
        self._append_bounded(rest)

    def _append_bounded(self, piece: bytes) -> None:
        # Keep one byte more than the limit, which shows that the frame is too long.
        self._coded += piece[: self._limit + 1 - len(self._coded)]
