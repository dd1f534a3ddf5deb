"""What the parts of the hub promise each other.

A push or an agent's Package becomes an item in the ledger, with one delivery for every device that
is to have it. A way (the IP link, the satellite operator) knows its protocol and nothing of
items: it asks a device's `Mailbox` for the bytes of one message, makes them leave, and says how
that went; what comes in, it hands to the mailbox. Whatever is awaited here returns once it is on
disk.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Protocol

import trio

from fieldagent.system.lazy_dataclass import dataclass

NUMBER_MAX = 2**32 - 1
"""Of a user or workspace: a user's number is also an origin on air."""

_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)


def number_of(text: str) -> int | None:
    """Return the number of a user or workspace, all of it or none: a cut one would be somebody
    else."""
    number = int(text) if _NUMBER.fullmatch(text) else 0
    return number if 1 <= number <= NUMBER_MAX else None


class Bearer(StrEnum):
    """How the hub and a device reach each other."""

    IP = "ip"
    SATELLITE = "satellite"
    SMS = "sms"
    RADIO = "radio"
    """By the link of another kit, which hears this one by radio."""


@dataclass(frozen=True, slots=True)
class Device:
    """One agent in the field, as its ways see it."""

    id: int
    workspace: int
    member: int
    """Whose agent it is: a user's number, which is also the origin of what it sends."""
    name: str
    imei: str | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Where the satellite operator believes a modem to be, which has told no position."""

    latitude: float
    longitude: float
    radius: int
    """Kilometres within which it is with a probability of 80 %."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """The bytes of one message to a device."""

    number: int
    """Names it between a way and the mailbox; never leaves the hub."""
    body: bytes
    """An envelope of `wire.envelope`."""


class Mailbox(Protocol):
    """One device's mail, as one way that reaches it sees it."""

    device: Device

    async def greeted(self, journal: int) -> None:
        """Note that the agent's journal has that number; 0 is of an agent that does not tell."""

    def news(self) -> list[trio.Event]:
        """Return events. One of them is set at the next change that may bring `load` something; ask
        for them before `load`."""

    def look_again(self) -> float:
        """Return the seconds after which time alone may bring `load` something; infinity for
        never."""

    async def load(self, capacity: int) -> OutgoingMessage | None:
        """Return what waits next, in at most `capacity` bytes, and is not already loaded on this
        way."""

    async def stored(self, outgoing: OutgoingMessage) -> None:
        """Note that the agent has it on disk: this delivery has ended, and its sender gets a
        receipt."""

    async def returned(
        self, outgoing: OutgoingMessage, *, reason: str, retry_after: float = 0.0
    ) -> None:
        """Take it back: it did not leave, or nobody knows: it waits again."""

    async def take_in(self, body: bytes) -> None:
        """Take in one message from the agent, of any content; damage in it is logged, never
        raised."""

    async def next_note(self) -> bytes:
        """Wait for what the agent is to be told of its kit. Cancelled, it loses nothing."""

    async def take_note(self, body: bytes) -> None:
        """Take what the agent tells of its kit, of any content; damage in it is logged, never
        raised."""


class Unknown(Exception):
    """No device has that token or IMEI."""


class Revoked(Unknown):
    """The device that has the token is revoked: whoever has its kit may be a thief."""
