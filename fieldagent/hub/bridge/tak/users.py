"""What is known of a user's connection to a TAK server, and of their alert."""

from __future__ import annotations

from dataclasses import field

import trio

from fieldagent.hub.bridge.tak import outward
from fieldagent.hub.bridge.tak.outward import ToldPosition
from fieldagent.hub.bridge.tak.site import TakSession
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.tak import TakUnit


@dataclass(slots=True)
class UserLink:
    """A user's connection, where there is one."""

    unit: TakUnit
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    session: TakSession | None = None
    busy: bool = False
    told: ToldPosition | None = None


@dataclass(slots=True)
class Alarm:
    """How often an alert, or its end, was told, and when it is again (Unix time)."""

    ends: bool
    times: int = 0
    due: float = 0.0

    def note(self, now: float) -> None:
        """It was told."""
        self.times += 1
        self.due = now + outward.alert_again(self.times)
