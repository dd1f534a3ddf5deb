"""KISS: frames between a host and its TNC (Chepponis and Karn, 1987), over a serial line or TCP.

Every FEND ends a frame and begins the next, so that a lost one costs a single frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fieldagent.wire.errors import LocalProtocolError

FEND, FESC, TFEND, TFESC = 0xC0, 0xDB, 0xDC, 0xDD
DATA, TX_DELAY, SET_HARDWARE = 0, 1, 6
FRAME_BYTES = 1024
"""Most bytes of a frame that is taken in."""
QUERY = b"TXBUF:"
"""Dire Wolf's: how many bytes wait to be transmitted. It answers in kind, `TXBUF:123`."""


def encode(content: bytes, command: int = DATA, port: int = 0) -> bytes:
    """Return a frame with a FEND before and behind it, its content escaped. Raises
    LocalProtocolError for a port or command outside of 0 to 15."""
    if not (0 <= port <= 15 and 0 <= command <= 15):
        raise LocalProtocolError(f"KISS ports and commands are 0 to 15, not {port} and {command}")
    frame = bytes([port << 4 | command]) + content
    escaped = frame.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc")
    return b"\xc0" + escaped + b"\xc0"


def waiting_bytes(answer: bytes) -> int | None:
    """Return what a TNC says to `QUERY`; None when it is something else."""
    match = re.fullmatch(rb"TXBUF:\s*([0-9]{1,9})\s*", answer)
    return None if match is None else int(match[1])


class KissDeframer:
    """Cuts a stream into (type, content); `damaged` counts what was no frame.

    The type is the command, and 16 times the port: at port 0, where we are, the command alone.
    """

    def __init__(self, limit: int = FRAME_BYTES) -> None:
        self._limit = limit
        self._raw = bytearray()
        self.damaged = 0

    def receive_data(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the frames that end in these bytes; what follows the last FEND is kept for the next
        call. An empty frame is none."""
        *ended, rest = data.split(b"\xc0")
        for piece in ended:
            self._take(piece)
            raw, self._raw = bytes(self._raw), bytearray()
            if not raw:
                continue
            frame = _unescaped(raw) if len(raw) <= self._limit else None
            if frame is None:
                self.damaged += 1
            else:
                yield frame[0], frame[1:]
        self._take(rest)

    def _take(self, piece: bytes) -> None:
        # One byte beyond the limit tells that it was exceeded.
        self._raw += piece[: self._limit + 1 - len(self._raw)]


def _unescaped(raw: bytes) -> bytes | None:
    # Some TNCs put a FESC before the FEND, in 2 to 3 of 100 frames: it stands for nothing.
    raw = raw.rstrip(b"\xdb")
    if not raw or re.search(rb"\xdb(?![\xdc\xdd])", raw):
        return None
    return raw.replace(b"\xdb\xdc", b"\xc0").replace(b"\xdb\xdd", b"\xdb")
