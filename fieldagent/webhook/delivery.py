"""Interface between the spool, which keeps deliveries, and the hooks, which accept them.

A hook is a function that accepts one delivery and returns the result. `dispatch` decides which
delivery is next and when. The spool keeps deliveries on disk, one row each, in order of arrival.
Only the oldest delivery of each lane is loaded, so that memory does not grow with the queue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Protocol

import trio

from fieldagent.package.payload import ALARM_MARK, SOS_MARK, UNAUTHENTICATED_MARK
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Delivery:
    """One payload that must be handed to one hook."""

    request_id: str
    lane: str
    """Name of the lane. Deliveries of one lane are handed over one after another, in order of
    arrival. Each sender has a lane. Each SOS has a separate lane, so that it never waits for other
    deliveries."""
    body: str
    """Inbound payload as compact JSON."""
    received: float
    """Unix time of the delivery's arrival."""
    attempts: int = 0
    """Number of attempts so far."""
    not_before: float = 0.0
    """Unix time of the next attempt."""

    @property
    def sos(self) -> bool:
        """Return True if the delivery contains an SOS. The body is searched as text."""
        return SOS_MARK in self.body

    @property
    def alarm(self) -> str:
        """Return the kind of the hub's own alarm that the delivery contains, such as `fence`, or ''
        for other deliveries.
        """
        return self.body.partition(ALARM_MARK)[2].partition('"')[0]

    @property
    def urgent(self) -> bool:
        """Return True if the delivery contains an SOS or an alarm."""
        return self.sos or bool(self.alarm)

    @property
    def unauthenticated(self) -> bool:
        """Return True if the delivery contains an unauthenticated SOS. The body is searched as
        text.
        """
        return UNAUTHENTICATED_MARK in self.body


class HandoverOutcome(Enum):
    """Result of one attempt to hand a delivery over to its hook."""

    HANDED = "handed"
    """The hook has accepted the delivery."""
    FAILED = "failed"
    """The attempt failed. The delivery is tried again by the schedule."""
    REFUSED = "refused"
    """The attempt failed, and automatic retries would fail too. The delivery becomes a dead letter,
    which people can replay."""
    GONE = "gone"
    """The hook accepts no more deliveries. The delivery waits for a corrected setting."""


@dataclass(frozen=True, slots=True)
class HandoverResult:
    outcome: HandoverOutcome
    reason: str = ""
    """Text for people: the fault, and the fix if there is one."""
    retry_after: float = 0.0
    """Minimum seconds that the receiver asks us to wait. Used for FAILED."""
    is_untaken: bool = False
    """True if it is certain that the receiver has not accepted the delivery, so that the attempt
    cost nothing. If False, the receiver may have accepted the delivery of a failed attempt."""


HookCall = Callable[[Delivery], Awaitable[HandoverResult]]
"""Function that hands one delivery to a hook. A cancelled call has no effect, and its delivery
counts as not tried."""


class Spool(Protocol):
    """The spool on disk, as one hook sees it.

    An asynchronous method returns when its change is on disk, and completes even if it is
    cancelled.
    """

    def get_heads(self, limit: int) -> list[Delivery]:
        """Return the oldest waiting delivery of each lane, the earliest `not_before` first."""

    def get_news(self) -> trio.Event:
        """Return an event that is set when a delivery arrives or is replayed after this call."""

    async def mark_handed_over(self, request_id: str) -> None:
        """Record that the hook has accepted the delivery, so that it is not tried again."""

    async def postpone(
        self, request_id: str, due_time: float, reason: str, *, tries: int = 1
    ) -> None:
        """Record `tries` failed attempts. The next attempt is at the Unix time `due_time`."""

    async def hasten(self) -> None:
        """Make all failed deliveries due immediately."""

    async def bury(self, request_id: str, reason: str) -> None:
        """Keep the delivery, but do not try it again until a person replays it."""
