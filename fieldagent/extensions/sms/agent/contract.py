"""Contract between the carrier and a modem for SMS. The drivers for an AT line and for ModemManager
implement it.

All methods may raise GsmSilent, GsmRefuses or PortLost unless stated otherwise. The modem is then
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
    """Error: a command was not answered in time, or its answer makes no sense."""


class GsmRefuses(Exception):
    """Error: the modem answers but cannot be used in its state. The text contains the remedy."""


MODEM_LOST_ERRORS = (PortLost, GsmSilent, GsmRefuses)
"""Errors after which a modem must be reopened."""


class SmsModem(Protocol):
    """Modem that is opened and set up."""

    look_soon: float
    """Seconds between two looks while the IP link is away."""
    arrived: bool
    """True if the store may contain messages that were not read yet."""
    news: trio.Event
    """Set when the modem sent an unsolicited report, and then replaced."""
    lost: Exception | None
    """Error because of which the modem must be reopened, if it occurred while a message was being
    sent."""
    crowded: bool
    """True if the last `read_state` found the store nearly full, so that soon no message can be
    received."""

    async def send(self, message: Submit) -> SendResult:
        """Pass a message to the modem and return the result. The method raises no error. If the
        modem is lost meanwhile, `lost` contains the error.
        """

    async def read_store(self) -> StoreContent:
        """Return the content of the store."""

    async def delete(self, place: int) -> None:
        """Free a place. A refusal of the modem is logged, and the next look finds the message
        again.
        """

    async def read_state(self) -> None:
        """Record the network, the signal and the fill level of the store in the modem's link."""
