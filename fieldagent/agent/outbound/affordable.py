"""What a Package of somebody who has a budget may cost, and on which channels it goes by that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fieldagent.agent.outbound.cost import Cost, costs
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.package import Channel, Package
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.credit import CREDIT_BYTES
from fieldagent.wire.sms_frame import ENVELOPE_BYTES


class SpendingLimits(NamedTuple):
    """What the writer of a Package may spend."""

    refused: str
    """Why nothing that costs, for people; empty where they may."""
    left: int
    """Credits of this day, of `per_day`."""
    per_day: int
    limit: str
    """What sets that limit, for people, after "of 9 that"."""
    has_sms: bool
    """Whether what goes over Cellular may leave by SMS."""


class Affordable(NamedTuple):
    package: Package
    """On the channels that it may take; on none at all where `withheld` has each."""
    withheld: dict[str, str]
    """The others, each with why."""
    price: int
    """Credits, and SMS."""

    @property
    def goes(self) -> bool:
        """Return whether a channel is left that it may go by."""
        return self.package.channels is None or bool(self.package.channels)

    @property
    def why(self) -> str:
        """Return why it may not take the others, each by name; empty where it may take all."""
        return "; ".join(f"{channel}: {reason}" for channel, reason in self.withheld.items())


def affordable(
    package: Package,
    outboxes: Mapping[Channel, ChannelOutbox],
    now: float,
    limits: SpendingLimits,
) -> Affordable:
    """Return the Package on the channels that what is left pays for, those withheld, each with why,
    and the price. `now` is Unix time."""
    price = 0
    withheld: dict[str, str] = {}
    estimates = costs(package, outboxes, now)
    for channel, cost in estimates.items():
        amount = _price(channel, cost, has_sms=limits.has_sms)
        left = limits.left - price
        if amount and limits.refused:
            withheld[channel] = limits.refused
        elif amount > left:
            withheld[channel] = (
                f"it takes {amount} of the {left} left of {limits.per_day} that {limits.limit}"
            )
        else:
            price += amount
    if not withheld:
        return Affordable(package, {}, price)
    wanted = frozenset(estimates) if package.channels is None else package.channels
    channels = wanted - {Channel(channel) for channel in withheld}
    return Affordable(replace(package, channels=channels), withheld, price)


def _price(channel: Channel, cost: Cost, *, has_sms: bool) -> int:
    """Return credits, of 50 bytes where bytes are paid for, and SMS; 0 of what costs none."""
    if channel is Channel.SATELLITE:
        return -(-cost.bytes // CREDIT_BYTES) if cost.by_bytes else cost.credits
    if channel is Channel.CELLULAR and has_sms:
        return -(-cost.bytes // ENVELOPE_BYTES)
    return 0
