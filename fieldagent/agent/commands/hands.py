"""What a command works with: the agent's parts, and what they tell of themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from fieldagent.agent.assembly import Parts
from fieldagent.agent.commands.recent_log import RecentLog
from fieldagent.agent.settings import Settings
from fieldagent.system.lazy_dataclass import dataclass


class CannotBeDone(Exception):
    """The text says why nothing was begun."""


class Failed(Exception):
    """The text says what went wrong."""


@dataclass(slots=True)
class Hands:
    settings: Settings
    parts: Parts
    status: Callable[[], dict[str, Any]]
    """As `GET /api/status` answers."""
    trouble: Callable[[], str | None]
    """What is wrong with the whole agent."""
    log: RecentLog = field(default_factory=RecentLog)
    starts: int = 0
    """How often the agent has begun, this time included."""
