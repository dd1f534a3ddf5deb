"""Shows which bearer transmits the items for the hub: the IP link or, while there is no link,
another bearer of the same channel.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field

import trio

from fieldagent.agent.channels.contract import MessageLimits, Transmission
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.credit import FREE_TARIFF
from fieldagent.wire.link import BODY_BYTES

IP_MESSAGE_LIMITS = MessageLimits(BODY_BYTES, 4_096, FREE_TARIFF)
"""Message limits of the IP link, whose messages are free."""


@dataclass(slots=True)
class IpTurn:
    """State of the IP link. The link's driver writes it, and the bearer that replaces the link
    reads it.
    """

    linked: bool = False
    since: float = field(default_factory=trio.current_time)
    """Time of the last change, on trio's clock."""
    unacknowledged: deque[Transmission] = field(default_factory=deque)
    """Transmissions that the last link left unacknowledged, with an SOS first. The bearer that
    replaces the link returns them to the outbox."""
    _changed: trio.Event = field(default_factory=trio.Event)

    def record_link_state(self, *, is_linked: bool) -> None:
        if is_linked == self.linked:
            return
        self.linked, self.since = is_linked, trio.current_time()
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for_change(self) -> None:
        """Wait until the link opens or closes."""
        await self._changed.wait()
