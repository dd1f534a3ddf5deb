"""What the spool and the hooks promise each other.

A hook is a call that takes one delivery and says how that went. `dispatch` decides which delivery
is next and when; the spool keeps them on disk, one row a delivery, in the order they came. Of each
lane only the oldest is ever shown, so memory does not grow with what waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Protocol

import trio

from fieldagent.package.payload import SOS_MARK, UNAUTHENTICATED_MARK
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Delivery:
    """One payload on its way to one hook."""

    request_id: str
    lane: str
    """Deliveries of one lane are handed over one after another, in the order they came. Each sender
    has one, and each SOS its own: it waits for nothing else."""
    body: str
    """The inbound payload as compact JSON."""
    received: float
    """Unix time."""
    attempts: int = 0
    """How often it was tried already."""
    not_before: float = 0.0
    """Unix time of the next attempt."""

    @property
    def sos(self) -> bool:
        """Return whether it tells of an SOS; looked for in the body's text."""
        return SOS_MARK in self.body

    @property
    def unauthenticated(self) -> bool:
        """Return whether nobody has proved that it is its sender's."""
        return UNAUTHENTICATED_MARK in self.body


class HandoverOutcome(Enum):
    """How one attempt ended."""

    HANDED = "handed"
    """The hook has it."""
    FAILED = "failed"
    """Not this time: to be tried again on the schedule."""
    REFUSED = "refused"
    """It makes no sense to try again by ourselves: a dead letter, which people can replay."""
    GONE = "gone"
    """The hook wants no more of anything. The delivery waits for a corrected setting."""


@dataclass(frozen=True, slots=True)
class HandoverResult:
    outcome: HandoverOutcome
    reason: str = ""
    """For people: what went wrong and, where they can mend it, how."""
    retry_after: float = 0.0
    """Seconds that the other side asked us to wait at least; counts for FAILED."""
    untaken: bool = False
    """It is certain that the other side has not taken it, so that it cost nothing; without this an
    attempt that failed may have been taken all the same."""


HookCall = Callable[[Delivery], Awaitable[HandoverResult]]
"""A hook. Cancelled, it leaves nothing behind, and the delivery counts as not tried."""


class Spool(Protocol):
    """One hook's side of the durable spool.

    What is awaited here returns once it is on disk, and is carried out even when cancelled.
    """

    def heads(self, limit: int) -> list[Delivery]:
        """Return the oldest delivery that waits of each lane; the soonest `not_before` first."""

    def news(self) -> trio.Event:
        """Set at the next arrival or replay after this call."""

    async def handed(self, request_id: str) -> None:
        """Note that it is done with."""

    async def postponed(
        self, request_id: str, until: float, reason: str, *, tries: int = 1
    ) -> None:
        """Note that one more attempt failed, or one that does not count; the next is at the Unix
        time `until`."""

    async def hasten(self) -> None:
        """Leave what was tried in vain to the hook at once."""

    async def dead(self, request_id: str, reason: str) -> None:
        """Keep it, but do not try it again until somebody replays it."""
