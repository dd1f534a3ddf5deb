"""The contract between the carrier and a modem for SMS. The drivers for an AT line and for
ModemManager implement it.

All methods may raise GsmSilent, GsmRefuses or PortLost unless stated otherwise; then the modem is
reopened.
"""

from __future__ import annotations

from typing import Protocol

import trio

from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.extensions.sms.agent.arrivals import StoreContent
from fieldagent.extensions.sms.sms_modem import SendResult
from fieldagent.wire.sms_pdu import Submit


class GsmSilent(Exception):
    """A command was not answered in time, or its answer makes no sense."""


class GsmRefuses(Exception):
    """The modem answers but cannot be used as it is; the text contains the remedy."""


MODEM_LOST_ERRORS = (PortLost, GsmSilent, GsmRefuses)
"""Errors after which a modem must be reopened."""


class SmsModem(Protocol):
    """One modem, opened and set up."""

    look_soon: float
    """Seconds between two looks while the IP link is away."""
    arrived: bool
    """True if the store may contain messages that were not looked at."""
    news: trio.Event
    """Set when the modem sent an unsolicited report, and then replaced."""
    lost: Exception | None
    """Error for which it must be reopened, if it occurred while a message was being sent."""
    crowded: bool
    """True if the last `read_state` found the store nearly full, so that soon no message can be
    received."""

    async def send(self, message: Submit) -> SendResult:
        """Pass a message to the modem and return the result. Never raises: if the modem is lost
        meanwhile, `lost` contains the error.
        """

    async def read_store(self) -> StoreContent:
        """Return the content of the store."""

    async def delete(self, place: int) -> None:
        """Free a place. If the modem refuses, that is logged, and the next look finds the message
        again.
        """

    async def read_state(self) -> None:
        """Record in its link the network, the signal, and the fill level of the store."""
