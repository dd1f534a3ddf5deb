"""Splits a program's output into lines of limited length and number. Does no I/O."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

LINE_MAX = 8192
"""Maximum number of characters in a line. A longer line is split."""

OUTPUT_MAX = 1 << 20
"""Maximum number of bytes that are printed for one run of the command. Further bytes are read and
dropped."""


class Lines:
    """Splits bytes into lines of text. Bytes that are not UTF-8 are shown as U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._line = ""
        self._room = OUTPUT_MAX

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the lines that `data` completes, without their line ends."""
        if self._room < 0:
            return
        yield from self._split(self._decoder.decode(data[: self._room]))
        self._room -= len(data)
        if self._room < 0:
            yield from self.end()
            yield f"[more than {OUTPUT_MAX} bytes: the rest is not printed]"

    def end(self) -> Iterator[str]:
        """Yield the text after the last line end."""
        yield from self._split(self._decoder.decode(b"", final=True))
        if self._line:
            yield self._line
            self._line = ""

    def _split(self, text: str) -> Iterator[str]:
        *complete_lines, self._line = (self._line + text).split("\n")
        for line in complete_lines:
            yield from _split_pieces(line) or [""]
        if len(self._line) > LINE_MAX:
            *full, self._line = _split_pieces(self._line)
            yield from full


def _split_pieces(line: str) -> list[str]:
    return [line[start : start + LINE_MAX] for start in range(0, len(line), LINE_MAX)]
