"""The context of commands: the parts of the agent that they use, the agent's condition, and the
newest warnings of the log, which are kept in memory up to a limit.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import field
from typing import Any

from fieldagent.agent.assembly import Parts
from fieldagent.agent.settings import Settings
from fieldagent.package.writing import format_clock_time
from fieldagent.system.lazy_dataclass import dataclass

LOG_LINES_MAX = 100
LOG_LINE_MAX = 300
"""Maximum number of characters in a line."""


class RecentLog(logging.Handler):
    """Log handler that keeps warnings and errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._records: deque[logging.LogRecord] = deque(maxlen=LOG_LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, and drop the oldest record if there are too many."""
        self._records.append(record)

    def list_lines(self) -> list[str]:
        """Return the kept records as lines of text, newest first."""
        return [_format_line(each) for each in reversed(self._records)]


def _format_line(record: logging.LogRecord) -> str:
    text = f"{format_clock_time(record.created)} {record.levelname} {record.getMessage()}"
    return text if len(text) <= LOG_LINE_MAX else f"{text[:LOG_LINE_MAX]}…"


class CannotBeDone(Exception):
    """The command was not begun. The message contains the reason."""


class CommandFailed(Exception):
    """The command failed. The message contains the reason."""


@dataclass(slots=True)
class CommandContext:
    settings: Settings
    parts: Parts
    status: Callable[[], dict[str, Any]]
    """Returns the response to `GET /api/status`."""
    find_trouble: Callable[[], str | None]
    """Returns the problem of the whole agent, or None if the agent works."""
    log: RecentLog = field(default_factory=RecentLog)
    start_count: int = 0
    """Number of starts of the agent, including this one."""
