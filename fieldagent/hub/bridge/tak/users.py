"""What is known of a user's connection to a TAK server."""

from __future__ import annotations

from dataclasses import field

import trio

from fieldagent.hub.bridge.tak.site import TakSession
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.tak import TakUnit
from fieldagent.wire.tak_map import ToldPosition


@dataclass(slots=True)
class UserLink:
    """A user's connection, where there is one."""

    unit: TakUnit
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    session: TakSession | None = None
    busy: bool = False
    told: ToldPosition | None = None
