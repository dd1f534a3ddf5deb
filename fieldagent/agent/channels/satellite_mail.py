"""Reads MT messages out of an SBD modem: each is verified, stored, and only then cleared.

Noise on the serial line costs another attempt but not the message, because the modem holds the only
copy. A garbled message is read again after 1, 5 and 30 s, and then at each look. It stays in the
modem until it can be read, another message needs its place, or ten minutes have passed. Then the
readable part is kept, and the hub is notified and sends the message again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto

import trio

from fieldagent.agent.channels.contract import Reception
from fieldagent.agent.channels.satellite_pace import WITHHELD, GatewayMailbox
from fieldagent.agent.channels.sbd_modem import Modem
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import sbd
from fieldagent.wire.envelope import Unreadable

log = logging.getLogger(__name__)

PAUSES = (1.0, 5.0, 30.0)
"""Seconds before a garbled message is read again. An SOS ends the pauses."""
TRIES_BESIDE = 2
"""Attempts per look at a message that was already read with pauses."""
GARBLED_MAX = 600.0
"""Seconds for which an unreadable message stays in the modem, if its place is not needed."""
GARBLED = "its sum was wrong, or its end lacked, each time that it was read"
STAYS = "a message is garbled on the serial line and is read again: check the cable"


class MailRead(Enum):
    """Result of reading the modem's message."""

    STORED = auto()
    """The message is stored, readable or not, and booked."""
    STAYS = auto()
    """The message is garbled and stays in the modem; it is booked later."""
    NOTHING = auto()
    """The modem gave nothing, and nothing is booked."""


@dataclass(slots=True)
class MailReader:
    """Reads one modem's messages, from the opening of its port until the port is lost."""

    modem: Modem
    reception: Reception
    mailbox: GatewayMailbox
    pause: Callable[[float], Awaitable[bool]]
    """Waits that many seconds; returns True, at once, if an SOS waits."""
    garbled_since: float | None = None
    """Time when the message first came garbled, by trio's clock; None if it is not garbled."""
    _size: int = 0
    """Size in bytes, as the session reported it; 0 if unknown."""

    async def read(self, *, needed: bool = False, size: int = 0) -> MailRead:
        """Read the message. With `needed`, another message is about to take its place, so it does
        not stay. `size` is its size in bytes, if a session has just reported it.

        Raises ModemSilent, PortLost.
        """
        self._size = size or self._size
        read, hurry = await self._try()
        if read is None or not (read.intact or read.body):
            if not self.mailbox.withheld:
                log.error("%s", WITHHELD)
            self.mailbox.withheld = True
            return MailRead.NOTHING
        now = trio.current_time()
        if not read.intact:
            if self.garbled_since is None:
                self.garbled_since = now
                await self.modem.link.recorder.fault("a message came garbled")
            if not needed and not hurry and now - self.garbled_since < GARBLED_MAX:
                return MailRead.STAYS
        if size:
            self.mailbox.uncleared = b""
        if read.body and read.body != self.mailbox.uncleared:
            if read.intact:
                await self.reception.receive(read.body)
            else:
                unreadable = Unreadable(self._size or len(read.body), read.guard)
                await self.reception.receive(read.body, damage=GARBLED, unreadable=unreadable)
            self.mailbox.uncleared = read.body
        if await self.modem.clear(sbd.CLEAR_MT):
            self.mailbox.uncleared = b""
        self.mailbox.withheld, self.garbled_since, self._size = False, None, 0
        return MailRead.STORED if read.body else MailRead.NOTHING

    async def _try(self) -> tuple[sbd.MobileTerminated | None, bool]:
        """Return the best reading, and True if a waiting SOS ended the pauses."""
        before = self.garbled_since is not None or self.mailbox.withheld
        pauses = (0.0,) * TRIES_BESIDE if before else (0.0, *PAUSES)
        best, hurry = None, False
        for seconds in pauses:
            if seconds and not hurry:
                log.info("a message came garbled over the serial line: reading it again")
                hurry = await self.pause(seconds)
            best = await self.modem.read() or best
            if best is not None and best.intact:
                break
        return best, hurry
