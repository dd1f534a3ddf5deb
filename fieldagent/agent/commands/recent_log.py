"""Keeps the newest warnings of the log in memory, up to a limit, for remote commands."""

from __future__ import annotations

import logging
from collections import deque

from fieldagent.package.writing import format_clock_time

LINES_MAX = 100
LINE_MAX = 300
"""Maximum number of characters in a line."""


class RecentLog(logging.Handler):
    """Log handler that keeps warnings and errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._records: deque[logging.LogRecord] = deque(maxlen=LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, and drop the oldest record if there are too many."""
        self._records.append(record)

    def list_lines(self) -> list[str]:
        """Return the kept records as lines of text, newest first."""
        return [_format_line(each) for each in reversed(self._records)]


def _format_line(record: logging.LogRecord) -> str:
    text = f"{format_clock_time(record.created)} {record.levelname} {record.getMessage()}"
    return text if len(text) <= LINE_MAX else f"{text[:LINE_MAX]}…"
