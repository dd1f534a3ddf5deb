"""Whose turn it is to carry what waits for the hub: the IP link's, or another bearer's of the same
channel where that link is away for a while."""

from __future__ import annotations

from collections import deque
from dataclasses import field

import trio

from fieldagent.agent.channels.contract import Carriage, Transmission
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.credit import FREE
from fieldagent.wire.link import BODY_BYTES

IP_CARRIAGE = Carriage(BODY_BYTES, 4_096, FREE)
"""What the link takes in one message."""


@dataclass(slots=True)
class IpTurn:
    """Written by the driver of the link, and looked at by who stands in for it."""

    linked: bool = False
    since: float = field(default_factory=trio.current_time)
    """When that changed last, by trio's clock."""
    left: deque[Transmission] = field(default_factory=deque)
    """What the last link left unacknowledged, SOS first. Who stands in for it gives these back."""
    _changed: trio.Event = field(default_factory=trio.Event)

    def note(self, *, linked: bool) -> None:
        if linked == self.linked:
            return
        self.linked, self.since = linked, trio.current_time()
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        """Wait until whose turn it is changes."""
        await self._changed.wait()
