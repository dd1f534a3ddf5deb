"""Interfaces between the parts of the hub.

A pushed item or an agent's Package is stored as an item in the ledger, with one delivery for each
addressed device. A channel (the IP link, a satellite operator) knows its protocol but does not know
items. The channel asks a device's `Mailbox` for the bytes of the next message, sends the bytes, and
reports the result. The channel passes incoming messages to the mailbox. All async functions of this
module return after the data is on disk.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Protocol

import trio

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.link import Body

NUMBER_MAX = 2**32 - 1
"""Largest id of a user or workspace. On the air, a user's id is the origin of the user's items."""

_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)


def parse_id(text: str) -> int | None:
    """Return the id of a user or workspace, or None if `text` is not a valid id. The function does
    not truncate an id, because a truncated id would identify another user.
    """
    number = int(text) if _NUMBER.fullmatch(text) else 0
    return number if 1 <= number <= NUMBER_MAX else None


class Bearer(StrEnum):
    """Network or link over which the hub and a device exchange messages."""

    IP = "ip"
    SATELLITE = "satellite"
    SMS = "sms"
    RADIO = "radio"
    """Radio to another kit, which relays the messages over its own link."""


@dataclass(frozen=True, slots=True)
class Device:
    """Device row of one agent, with the columns that the hub's channels need."""

    id: int
    workspace: int
    member: int
    """Id of the device's user, which is also the origin of its items."""
    name: str
    imei: str | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Position of a modem according to the satellite operator, for a modem that reports no
    position.
    """

    latitude: float
    longitude: float
    radius: int
    """Radius in kilometres that contains the modem with a probability of 80 %."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """Bytes of one message to a device."""

    number: int
    """Number by which the channel and the mailbox identify the message. It is not sent to the
    agent."""
    body: Body
    """One or more envelopes of `wire.envelope`."""


class ItemResult(StrEnum):
    """Result of processing an item or event from a bridge's server or from a tracker."""

    TAKEN = "taken"
    REPEATED = "repeated"
    """The item was accepted before."""
    ASKED = "asked"
    """The item was a question about the price. The hub answered it and sent nothing to kits."""
    RECEIPT = "receipt"
    """The event is a receipt for an item that was sent."""
    OWN = "own"
    """A bridge of this hub has sent the item to the server."""
    LIMITED = "limited"
    """The item or event exceeds a limit and was dropped."""
    REFUSED = "refused"
    """The item cannot be used, because it has no recipient at this hub or no text."""
    UNREADABLE = "unreadable"
    RETAINED = "retained"
    """The event is old: the server keeps it and sends it to each new subscriber (MQTT retain)."""
    PASSED = "passed"
    """The hub's own server forwarded the event only to phones."""
    OTHER = "other"
    """The hub does not use this kind of event. Example: the position of a phone."""


class Mailbox(Protocol):
    """Waiting messages of one device, as seen by one of the device's channels."""

    device: Device

    async def record_hello(self, journal_number: int) -> None:
        """Record that the agent has connected. `journal_number` identifies its journal (its
        database file); 0 if the agent does not report it.
        """

    def get_news(self) -> trio.Event:
        """Return an event that is set at the next change after which `load` may return a message.
        Call `get_news` before `load`, so that no change is missed.
        """

    def compute_recheck_delay(self) -> float:
        """Return the seconds after which `load` may return a message even if nothing has changed.
        Return infinity if only a change can make a message available.
        """

    async def load(self, capacity: int) -> OutgoingMessage | None:
        """Return the next waiting message, of at most `capacity` bytes, that is not already loaded
        on this channel.
        """

    async def mark_stored(self, outgoing: OutgoingMessage) -> None:
        """Record that the agent has the message on disk. This ends its deliveries, and their
        senders get receipts.
        """

    async def return_message(
        self, outgoing: OutgoingMessage, *, reason: str, retry_after: float = 0.0
    ) -> None:
        """Take back a message that was not sent, or whose result is unknown. Its content waits to
        be sent again, after `retry_after` seconds. `reason` is a text for people.
        """

    async def store_body(self, body: bytes) -> None:
        """Process one message from the agent. `body` may be anything: errors in it are logged and
        never raised.
        """

    async def next_note(self) -> bytes:
        """Wait for the next note for the agent (`wire.kit_note`), and return its bytes. No note is
        lost if the wait is cancelled.
        """

    async def process_note(self, body: bytes) -> None:
        """Process a note from the agent (`wire.kit_note`). `body` may be anything: errors in it are
        logged and never raised.
        """


class UnknownDevice(Exception):
    """Error: no device has this token or IMEI."""


class Revoked(UnknownDevice):
    """Error: the device with this token is revoked, because its kit may be stolen."""
