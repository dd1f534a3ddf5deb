"""Delivery of one Package over its channels, up to its terminal status. Only decisions: no I/O, no
clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache

from fieldagent.package.package import Channel, Status
from fieldagent.system.lazy_dataclass import dataclass

NOT_CONFIGURED = "not configured"
CHEAPEST_FIRST = (Channel.CELLULAR, Channel.RADIO, Channel.SATELLITE)


class FanOut(Enum):
    """Rule for the other channels after a success. An SOS always uses every channel."""

    EVERY = "every"
    """Each channel continues after the first success."""
    FIRST = "first"
    """All channels begin at once. At the first success, channels that have not transmitted are
    withdrawn."""
    CHEAPEST = "cheapest"
    """As FIRST, but each channel gets a head start before the next, more expensive one begins
    (`agent.outbound.head_start`)."""


@dataclass(frozen=True, slots=True)
class Leg:
    """Delivery of a Package on one channel. `status` is None while it waits or is being sent."""

    status: Status | None = None
    reason: str = ""
    begins: float = 0.0
    """Seconds after its acceptance at which it may begin on this channel."""


def terminal_status(legs: Iterable[Leg]) -> Status | None:
    """Return the terminal status of a Package, or None. The first success gives Delivered. Any
    other status requires that all channel deliveries have ended.

    The status is Error only if no channel delivery was withdrawn. A Package that was replaced or
    canceled on one channel did not fail on every channel.
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
    """Return the initial channel deliveries of a Package. They wait on configured channels and have
    failed on others.
    """
    waiting = configured if channels is None else channels & configured
    missing = frozenset[Channel]() if channels is None else channels - configured
    unavailable = Leg(Status.ERROR, NOT_CONFIGURED)
    return {**dict.fromkeys(sorted(waiting), Leg()), **dict.fromkeys(sorted(missing), unavailable)}


def legs_json(legs: Mapping[Channel, Leg]) -> dict[str, dict[str, str | None]]:
    """Return the member `channels` of an answer: the status of each channel, with the reason if
    there is one.
    """
    return {
        channel: {"status": leg.status, **({"reason": leg.reason} if leg.reason else {})}
        for channel, leg in legs.items()
    }
