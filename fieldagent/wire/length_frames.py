"""Frames that begin with a mark and a length of two bytes, on a line where other things may stand
between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal


class LengthDeframer:
    """Cuts a stream into the contents of its frames; what stands between them is skipped.

    `damaged` counts the places where a frame's length could not be one.
    """

    def __init__(
        self, mark: bytes, order: Literal["big", "little"], most: int, least: int = 0
    ) -> None:
        """`order`: of the length's bytes; `least` and `most`: bytes of a content."""
        self._mark, self._order = mark, order
        self._least, self._most = least, most
        self._raw = bytearray()
        self.damaged = 0

    @property
    def is_within(self) -> bool:
        """Return whether a frame has begun and is not whole: `give_up` once nothing has come for
        some time."""
        return bool(self._raw)

    def give_up(self) -> None:
        """Forget the frame that has begun: its rest was lost."""
        self.damaged += bool(self._raw)
        self._raw.clear()

    def receive_data(self, data: bytes) -> Iterator[bytes]:
        """Yield the content of each frame that is whole by now; the rest is kept for the next
        call."""
        self._raw += data
        head = len(self._mark) + 2
        while self._find_frame(head):
            size = int.from_bytes(self._raw[len(self._mark) : head], self._order)
            if not self._least <= size <= self._most:
                self.damaged += 1
                del self._raw[: len(self._mark)]
            elif len(self._raw) < head + size:
                return
            else:
                content = bytes(self._raw[head : head + size])
                del self._raw[: head + size]
                yield content

    def _find_frame(self, head: int) -> bool:
        """Drop what stands before a frame; return whether its head is there."""
        begins = self._raw.find(self._mark)
        if begins < 0:
            # The last byte may be the first half of the mark.
            begins = len(self._raw) - self._raw.endswith(self._mark[:1])
        del self._raw[:begins]
        return len(self._raw) >= head
