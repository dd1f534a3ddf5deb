"""KISS: frames between a host and its TNC (Chepponis and Karn, 1987), over a serial line or TCP.

Frames begin and end with a FEND, so that a lost FEND destroys only one frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fieldagent.wire.errors import LocalProtocolError

FEND, FESC, TFEND, TFESC = 0xC0, 0xDB, 0xDC, 0xDD
DATA, TX_DELAY, SET_HARDWARE = 0, 1, 6
FRAME_BYTES = 1024
"""Maximum bytes of a received frame."""
QUERY = b"TXBUF:"
"""Query of Dire Wolf for the number of bytes that wait for transmission. The answer has the same
form, `TXBUF:123`."""


def encode(content: bytes, command: int = DATA, port: int = 0) -> bytes:
    """Return a frame with escaped content between two FENDs. Raises LocalProtocolError if port or
    command is not 0 to 15.
    """
    if not (0 <= port <= 15 and 0 <= command <= 15):
        raise LocalProtocolError(f"KISS ports and commands are 0 to 15, not {port} and {command}")
    frame = bytes([port << 4 | command]) + content
    escaped = frame.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc")
    return b"\xc0" + escaped + b"\xc0"


def parse_waiting_bytes(answer: bytes) -> int | None:
    """Return the number in a TNC's answer to `QUERY`, or None for any other text."""
    match = re.fullmatch(rb"TXBUF:\s*([0-9]{1,9})\s*", answer)
    return None if match is None else int(match[1])


TEXT_MAX = 80
"""Maximum bytes of text that are kept to recognise a prompt."""
LEAVE_COMMANDS = b"\rKISS ON\rRESTART\r"
"""Commands that switch a TNC with TAPR's commands from its command mode back to KISS."""
_PROMPT = re.compile(rb"(?:^|[\r\n])cmd:|EH\?")
_NO_TEXT = re.compile(rb"[^\t\r\n -~]")


class CommandModeDetector:
    """Recognises a TNC in its command mode. Such a TNC sends `cmd:` or `EH?` instead of frames."""

    def __init__(self) -> None:
        self._text = b""

    def hears_prompt(self, data: bytes) -> bool:
        """Add received bytes, and return True if they end with a prompt. An AX.25 frame never
        consists only of text.
        """
        self._text = (self._text + data).rpartition(b"\xc0")[2][-TEXT_MAX:]
        is_text = _NO_TEXT.search(self._text) is None
        return is_text and _PROMPT.search(self._text) is not None


class KissDeframer:
    """Splits a stream into (type, content). `damaged` counts invalid frames.

    The type is the command plus 16 times the port. At port 0, which we use, the type equals the
    command.
    """

    def __init__(self, limit: int = FRAME_BYTES) -> None:
        self._limit = limit
        self._raw = bytearray()
        self.damaged = 0

    def receive_data(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the frames that end in these bytes. The bytes after the last FEND are kept for the
        next call. Empty frames are skipped.
        """
        *complete_frames, rest = data.split(b"\xc0")
        for piece in complete_frames:
            self._append_bounded(piece)
            raw, self._raw = bytes(self._raw), bytearray()
            if not raw:
                continue
            frame = _unescape(raw) if len(raw) <= self._limit else None
            if frame is None:
                self.damaged += 1
            else:
                yield frame[0], frame[1:]
        self._append_bounded(rest)

    def _append_bounded(self, piece: bytes) -> None:
        # Keep one byte more than the limit, which shows that the frame is too long.
        self._raw += piece[: self._limit + 1 - len(self._raw)]


def _unescape(data: bytes) -> bytes | None:
    # Remove a meaningless FESC before the FEND, which some TNCs send in 2 to 3 of 100 frames.
    data = data.rstrip(b"\xdb")
    if not data or re.search(rb"\xdb(?![\xdc\xdd])", data):
        return None
    return data.replace(b"\xdb\xdc", b"\xc0").replace(b"\xdb\xdd", b"\xdb")
