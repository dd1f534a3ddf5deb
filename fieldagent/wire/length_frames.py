"""Frames that begin with a mark and a length of two bytes, on a serial line that carries other
bytes between frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal


class LengthDeframer:
    """Splits a stream into the contents of its frames. Bytes between frames are skipped.

    `damaged` counts frames with an impossible length.
    """

    def __init__(
        self, mark: bytes, order: Literal["big", "little"], maximum: int, minimum: int = 0
    ) -> None:
        """Create a deframer for frames that begin with `mark`. `order` is the byte order of the
        length, and `minimum` to `maximum` the number of bytes in the content of a frame.
        """
        self._mark, self._order = mark, order
        self._least, self._most = minimum, maximum
        self._raw = bytearray()
        self.damaged = 0

    @property
    def is_within(self) -> bool:
        """Return True if the beginning of an incomplete frame, or of its mark, has arrived. If no
        further bytes arrive for some time, the caller should call `discard_incomplete`.
        """
        return bool(self._raw)

    def discard_incomplete(self) -> None:
        """Discard the incomplete frame, because the rest of it was lost."""
        self.damaged += bool(self._raw)
        self._raw.clear()

    def receive_data(self, data: bytes) -> Iterator[bytes]:
        """Yield the content of each complete frame. The bytes of an incomplete frame are kept for
        the next call, and all other bytes are dropped.
        """
        self._raw += data
        header_size = len(self._mark) + 2
        while self._find_frame(header_size):
            size = int.from_bytes(self._raw[len(self._mark) : header_size], self._order)
            if not self._least <= size <= self._most:
                self.damaged += 1
                del self._raw[: len(self._mark)]
            elif len(self._raw) < header_size + size:
                return
            else:
                content = bytes(self._raw[header_size : header_size + size])
                del self._raw[: header_size + size]
                yield content

    def _find_frame(self, head: int) -> bool:
        """Drop the bytes before a frame, and return True if the frame's head is complete."""
        frame_start = self._raw.find(self._mark)
        if frame_start < 0:
            # Keep the last byte, because it may be the first half of the mark.
            frame_start = len(self._raw) - self._raw.endswith(self._mark[:1])
        del self._raw[:frame_start]
        return len(self._raw) >= head
