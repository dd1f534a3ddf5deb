"""Shows the progress of long work on standard error: as a bar on a terminal, otherwise as a line
from time to time.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from math import inf
from types import TracebackType

from fieldagent.system.terminal import escape_line

BAR = 30
"""Width of the bar in characters."""
LINE_EVERY_S = 10.0
"""Seconds between two lines if standard error is not a terminal."""
DRAW_INTERVAL_S = 0.1
"""Seconds between two drawings of the bar."""


class Progress:
    """Progress display. It is a context manager, which removes the bar at the end."""

    def __init__(
        self,
        title: str,
        unit: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        at_once: bool = False,
    ) -> None:
        """`unit` is a plural noun for the counted units. If `at_once`, the first call of `show`
        displays something; otherwise work that ends within the first interval displays nothing.
        """
        self._title, self._unit, self._clock = escape_line(title), unit, clock
        self._is_terminal = sys.stderr.isatty()
        self._interval = DRAW_INTERVAL_S if self._is_terminal else LINE_EVERY_S
        self._shown_at = -inf if at_once else clock()

    def __enter__(self) -> Progress:
        return self

    def show(self, done_units: int, total_units: int | None = None) -> None:
        """Show that `done_units` of `total_units` units are done, if enough time has passed since
        the last display.
        """
        if self._clock() < self._shown_at + self._interval:
            return
        self._shown_at = self._clock()
        text = f"{self._title}: {done_units:,} {self._unit}"
        if total_units:
            text = f"{self._title}: {done_units:,} of {total_units:,} {self._unit}"
        if self._is_terminal:
            filled = min(BAR, done_units * BAR // total_units) if total_units else 0
            bar = f"[{'#' * filled}{'.' * (BAR - filled)}] " if total_units else ""
            text = (bar + text)[: shutil.get_terminal_size().columns - 1]
            _write(f"\r\x1b[K{text}")
        else:
            _write(f"{text}\n")

    def __exit__(
        self,
        type_: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_terminal:
            _write("\r\x1b[K")


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
