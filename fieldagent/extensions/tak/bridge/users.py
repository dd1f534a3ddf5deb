"""State of a user's connection to a TAK server."""

from __future__ import annotations

from dataclasses import field

import trio

from fieldagent.extensions.tak.bridge.site import TakSession
from fieldagent.extensions.tak.events import TakUnit
from fieldagent.extensions.tak.map_events import SentPosition
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(slots=True)
class UserLink:
    """A user's connection to the server, and what the server was told about the user. `session` is
    None while there is no connection.
    """

    unit: TakUnit
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    session: TakSession | None = None
    busy: bool = False
    told: SentPosition | None = None
