"""One Package over its channels until its terminal status. Decisions alone: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache

from fieldagent.package.package import Channel, Status
from fieldagent.system.lazy_dataclass import dataclass

NOT_CONFIGURED = "not configured"
CHEAPEST_FIRST = (Channel.CELLULAR, Channel.RADIO, Channel.SATELLITE)


class FanOut(Enum):
    """What becomes of the other channels; an SOS goes over every one, whatever this says."""

    EVERY = "every"
    """Each goes on after the first success."""
    FIRST = "first"
    """All begin at once; what has not been transmitted at the first success is withdrawn."""
    CHEAPEST = "cheapest"
    """As FIRST, but each channel gets a head start before the next dearer one begins
    (`agent.outbound.head_start`)."""


@dataclass(frozen=True, slots=True)
class Leg:
    """How a Package stands on one channel; `status` is None while it waits or is being sent."""

    status: Status | None = None
    reason: str = ""
    begins: float = 0.0
    """Seconds from its acceptance at which it may begin there."""


def terminal_status(legs: Iterable[Leg]) -> Status | None:
    """Return how a Package has ended, if it has: the first success is Delivered; anything else
    needs every leg to have ended.

    Error only when no leg was withdrawn: a Package that was replaced or canceled on one channel
    and failed on the others did not fail on every channel.
    """
    statuses = {leg.status for leg in legs}
    if Status.DELIVERED in statuses:
        return Status.DELIVERED
    if None in statuses:
        return None
    for status in (Status.COLLAPSED, Status.CANCELED):
        if status in statuses:
            return status
    return Status.ERROR


@lru_cache(maxsize=16)
def legs_of(
    channels: frozenset[Channel] | None, configured: frozenset[Channel]
) -> Mapping[Channel, Leg]:
    """Return a Package's legs at the start: it waits where a channel is configured, elsewhere it
    has failed."""
    waiting = configured if channels is None else channels & configured
    missing = frozenset[Channel]() if channels is None else channels - configured
    unavailable = Leg(Status.ERROR, NOT_CONFIGURED)
    return {**dict.fromkeys(sorted(waiting), Leg()), **dict.fromkeys(sorted(missing), unavailable)}


def legs_json(legs: Mapping[Channel, Leg]) -> dict[str, dict[str, str | None]]:
    """Return the member `channels` of an answer: each channel's status, and why where there is a
    why."""
    return {
        channel: {"status": leg.status, **({"reason": leg.reason} if leg.reason else {})}
        for channel, leg in legs.items()
    }
