"""The context of commands: the parts of the agent that they use, and the agent's condition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from fieldagent.agent.assembly import Parts
from fieldagent.agent.commands.recent_log import RecentLog
from fieldagent.agent.settings import Settings
from fieldagent.system.lazy_dataclass import dataclass


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
