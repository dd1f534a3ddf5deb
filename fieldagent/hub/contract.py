"""Interfaces between the parts of the hub.

A push or an agent's Package becomes an item in the ledger, with one delivery for each addressed
device. A channel (the IP link, the satellite operator) knows its protocol but not items. A channel
asks a device's `Mailbox` for the bytes of a message, sends these bytes, and reports the result. It
hands incoming messages to the mailbox. All async functions of this module return after the data is
on disk.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Protocol

import trio

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.link import Body

NUMBER_MAX = 2**32 - 1
"""Largest id of a user or workspace. A user's id is also an origin on air."""

_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)


def number_of(text: str) -> int | None:
    """Return the id of a user or workspace, or None if the text is not a valid id. A truncated id
    would name someone else.
    """
    number = int(text) if _NUMBER.fullmatch(text) else 0
    return number if 1 <= number <= NUMBER_MAX else None


class Bearer(StrEnum):
    """Bearer between the hub and a device."""

    IP = "ip"
    SATELLITE = "satellite"
    SMS = "sms"
    RADIO = "radio"
    """Over the link of another kit that hears this kit by radio."""


@dataclass(frozen=True, slots=True)
class Device:
    """An agent in the field, as the hub's channels see it."""

    id: int
    workspace: int
    member: int
    """Id of the device's user, which is also the origin of its items."""
    name: str
    imei: str | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Position of a modem according to the satellite operator, if the modem reports none."""

    latitude: float
    longitude: float
    radius: int
    """Radius in kilometres that contains the modem with a probability of 80 %."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """Bytes of one message to a device."""

    number: int
    """Id between a channel and the mailbox, used only within the hub."""
    body: Body
    """One or more envelopes of `wire.envelope`."""


class ItemResult(StrEnum):
    """Result for something that arrived from a bridge's server or from a tracker."""

    TAKEN = "taken"
    REPEATED = "repeated"
    """The item was accepted before."""
    ASKED = "asked"
    """The item asked for a cost, and nothing was sent."""
    RECEIPT = "receipt"
    """The event is a receipt for an item that was sent."""
    OWN = "own"
    """A bridge of this hub has sent the item to the server."""
    LIMITED = "limited"
    """The item or event exceeds a limit and was dropped."""
    REFUSED = "refused"
    """The item is unusable: it has no recipient at this hub, or no text."""
    UNREADABLE = "unreadable"
    RETAINED = "retained"
    """The server retains the event for new subscribers, so it is not news."""
    PASSED = "passed"
    """The hub's own server passed the event on to phones only."""
    OTHER = "other"
    """The event is of a kind that the hub does not need, such as a phone's position."""


class Mailbox(Protocol):
    """Mail of one device, as seen by one of its channels."""

    device: Device

    async def greeted(self, journal: int) -> None:
        """Record the number of the agent's journal; 0 if the agent does not report it."""

    def news(self) -> trio.Event:
        """Return an event that is set at the next change after which `load` may return a message.
        Get it before you call `load`.
        """

    def look_again(self) -> float:
        """Return the seconds after which `load` may return a message without a change; infinity for
        never.
        """

    async def load(self, capacity: int) -> OutgoingMessage | None:
        """Return the next waiting message, of at most `capacity` bytes, that is not already loaded
        on this channel.
        """

    async def mark_stored(self, outgoing: OutgoingMessage) -> None:
        """Record that the agent has the message on disk. The deliveries end, and their senders get
        receipts.
        """

    async def returned(
        self, outgoing: OutgoingMessage, *, reason: str, retry_after: float = 0.0
    ) -> None:
        """Take back a message that did not leave, or whose outcome is unknown. Its content waits
        again.
        """

    async def store_body(self, body: bytes) -> None:
        """Process one message from the agent, with any content. Damage is logged and never
        raised.
        """

    async def next_note(self) -> bytes:
        """Wait for the next note to the agent about its kit. A cancelled wait loses no note."""

    async def process_note(self, body: bytes) -> None:
        """Process the agent's note about its kit, with any content. Damage is logged and never
        raised.
        """


class UnknownDevice(Exception):
    """Error: no device has this token or IMEI."""


class Revoked(UnknownDevice):
    """Error: the device with this token is revoked, because a thief may have its kit."""
