"""Interface between the carrier and a modem for SMS. Two drivers implement it: one for an AT line
and one for ModemManager.

All methods may raise GsmSilent, GsmRefuses or PortLost, unless their docstring says otherwise. The
carrier then opens the modem again.
"""

from __future__ import annotations

from typing import Protocol

import trio

from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.extensions.sms.agent.arrivals import StoreContent
from fieldagent.extensions.sms.sms_modem import SendResult
from fieldagent.wire.sms_pdu import Submit


class GsmSilent(Exception):
    """Error: the modem did not answer a command in time, or its answer is invalid."""


class GsmRefuses(Exception):
    """Error: the modem answers, but cannot be used in its present state. The text contains the
    remedy.
    """


MODEM_LOST_ERRORS = (PortLost, GsmSilent, GsmRefuses)
"""Errors after which the modem must be opened again."""


class SmsModem(Protocol):
    """A modem that is open and set up."""

    look_soon: float
    """Seconds between two reads of the store while there is no IP link."""
    arrived: bool
    """True if the store may contain messages that have not been read."""
    news: trio.Event
    """Set when the modem sent an unsolicited report, and then replaced."""
    lost: Exception | None
    """Error that occurred while a message was being sent. The modem must then be opened again."""
    crowded: bool
    """True if the store was nearly full at the last `read_state`. When the store is full, the modem
    cannot receive messages."""

    async def send(self, message: Submit) -> SendResult:
        """Pass a message to the modem and return the result. This method raises no error. If the
        modem is lost while it sends, `lost` contains the error.
        """

    async def read_store(self) -> StoreContent:
        """Read the messages in the modem's store, without deleting them. Return the complete
        messages and the messages with missing parts.
        """

    async def delete(self, place: int) -> None:
        """Free a place in the store. If the modem refuses, the refusal is logged, and the next read
        finds the message again.
        """

    async def read_state(self) -> None:
        """Read the network, the signal and the fill level of the message store. Record them in
        `link`.
        """
