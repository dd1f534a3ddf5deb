"""Stages of an item at its addressee, and the terminal status of a Package from its deliveries on
each channel. Pure: no I/O and no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from functools import lru_cache

from fieldagent.package.package import Channel, Status
from fieldagent.system.lazy_dataclass import dataclass


class Stage(IntEnum):
    """Stages of an item at its addressee, by their numbers on the air. `STAGE_ORDER` contains their
    order.
    """

    STORED = 0
    """The item is on the disk of the person's kit."""
    PROGRAMS = 1
    """One of the person's programs (the kit's hook or page) has accepted the item."""
    READ = 2
    """A person has confirmed that they read the item."""
    HANDED_OVER = 3
    """An email or SMS service has accepted the item. This does not prove that the item has
    arrived."""
    NOBODY = 4
    """The name or address is unknown or cannot be reached. The stage's text contains the reason."""
    RADIO = 5
    """The person's handheld radio has confirmed the item. This does not show that the person has
    read it. If the item's text is too long for one packet, the stage's text begins with the part
    that has arrived, such as `1/4`."""


STAGE_ORDER = (
    Stage.NOBODY,
    Stage.STORED,
    Stage.RADIO,
    Stage.PROGRAMS,
    Stage.HANDED_OVER,
    Stage.READ,
)
"""Stages in their order, the lowest first. The times of stages are not enough to order them,
because the clocks of kits differ."""


def describe_stage(stage: Stage, addressee: str, text: str = "") -> str:
    """Return the stage as a text for people. `addressee` is the addressee's name. `text` is the
    name of a person or service, or a reason.
    """
    if stage is Stage.READ and not text:
        # The kit's current user has read the item without giving a name.
        return f"read at {addressee}'s kit"
    if stage is Stage.READ:
        return f"read by {text}" if text == addressee else f"read by {text}, at {addressee}'s kit"
    stage_texts = {
        Stage.STORED: f"on {addressee}'s kit",
        Stage.PROGRAMS: f"with {addressee}'s programs",
        Stage.HANDED_OVER: f"handed over to {text}, for {addressee}",
        Stage.NOBODY: f"{addressee} cannot be reached: {text}",
        Stage.RADIO: f"{_describe_part(text)}on {addressee}'s radio",
    }
    return stage_texts[stage]


def _describe_part(text: str) -> str:
    match = re.match(r"([0-9]{1,3})/([0-9]{1,3})(?: |$)", text)
    return f"part {match[1]} of {match[2]} " if match else ""


NOT_CONFIGURED = "not configured"
CHANNELS_BY_PRICE = (Channel.CELLULAR, Channel.RADIO, Channel.SATELLITE)


class FanOut(Enum):
    """Rule for the other channels after a success on one channel. An SOS always uses every
    channel.
    """

    EVERY = "every"
    """Every channel continues after the first success."""
    FIRST = "first"
    """All channels begin at once. At the first success, the Package is withdrawn from channels that
    have not transmitted it."""
    CHEAPEST = "cheapest"
    """Like FIRST, but each channel gets a head start before the next more expensive channel begins
    (`agent.outbound.head_start`)."""


@dataclass(frozen=True, slots=True)
class ChannelDelivery:
    """Delivery of a Package on one channel. `status` is None while the Package waits or is being
    sent.
    """

    status: Status | None = None
    reason: str = ""
    begins_after: float = 0.0
    """Seconds from the acceptance of the Package until this channel may send it."""


def get_terminal_status(deliveries: Iterable[ChannelDelivery]) -> Status | None:
    """Return the terminal status of a Package, or None if it has none yet. After the first success,
    the status is Delivered. For any other status, all channel deliveries must have ended.

    The status is Error only if no channel delivery was withdrawn. A Package that was replaced or
    cancelled on one channel did not fail on every channel.
    """
    statuses = {delivery.status for delivery in deliveries}
    if Status.DELIVERED in statuses:
        return Status.DELIVERED
    if None in statuses:
        return None
    for status in (Status.COLLAPSED, Status.CANCELED):
        if status in statuses:
            return status
    return Status.ERROR


@lru_cache(maxsize=16)
def make_deliveries(
    channels: frozenset[Channel] | None, configured_channels: frozenset[Channel]
) -> Mapping[Channel, ChannelDelivery]:
    """Return the initial channel deliveries of a Package. The Package waits on configured channels
    and has failed on other channels.
    """
    waiting = configured_channels if channels is None else channels & configured_channels
    missing = frozenset[Channel]() if channels is None else channels - configured_channels
    unavailable = ChannelDelivery(Status.ERROR, NOT_CONFIGURED)
    return {
        **dict.fromkeys(sorted(waiting), ChannelDelivery()),
        **dict.fromkeys(sorted(missing), unavailable),
    }


def encode_deliveries(
    deliveries: Mapping[Channel, ChannelDelivery],
) -> dict[str, dict[str, str | None]]:
    """Return the member `channels` of a response: the status on each channel, and the reason if
    there is one.
    """
    return {
        channel: {
            "status": delivery.status,
            **({"reason": delivery.reason} if delivery.reason else {}),
        }
        for channel, delivery in deliveries.items()
    }
