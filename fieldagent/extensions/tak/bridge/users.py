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
    """A user's connection to the server. `session` is None while there is no connection.
    `sent_position` is the last position of the user that was sent over it, or None.
    """

    unit: TakUnit
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    session: TakSession | None = None
    busy: bool = False
    sent_position: SentPosition | None = None
