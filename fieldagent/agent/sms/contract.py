"""What the carrier and a modem for SMS promise each other. An AT line and ModemManager keep it.

All that is here may raise GsmSilent, GsmRefuses or PortLost, unless it says otherwise; the
modem is opened anew then.
"""

from __future__ import annotations

from typing import Protocol

import trio

from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.agent.sms.arrivals import Found
from fieldagent.wire.sms_modem import Sent
from fieldagent.wire.sms_pdu import Submit


class GsmSilent(Exception):
    """A command was not answered in time, or by what cannot be understood."""


class GsmRefuses(Exception):
    """The modem answers, and cannot be used as it is; the text says what to do."""


LOST = (PortLost, GsmSilent, GsmRefuses)
"""Why a modem must be opened anew."""


class SmsModem(Protocol):
    """One modem, opened and set up."""

    look_soon: float
    """Seconds between two looks while the IP link is away."""
    arrived: bool
    """Something may lie in the store that was not looked at."""
    news: trio.Event
    """Set when the modem said something unasked, and then replaced."""
    lost: Exception | None
    """Why it must be opened anew, where a message was under way as that showed."""
    crowded: bool
    """The store is filled so far that soon nothing more is received; as `look` found it."""

    async def send(self, message: Submit) -> Sent:
        """Hand a message over, and return how that ended. Never raises: where the modem goes away
        meanwhile, `lost` says so."""

    async def stored(self) -> Found:
        """Return what lies in the store."""

    async def delete(self, place: int) -> None:
        """Free a place. Where the modem does not, that is in the log, and the next look finds it
        again."""

    async def look(self) -> None:
        """Write down in its link whether a network is there, how well, and how full the store
        is."""
