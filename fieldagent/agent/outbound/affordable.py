"""Chooses the channels that a sender's budget can pay for, for one Package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fieldagent.agent.outbound.cost import Cost, compute_costs
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.package import Channel, Package
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.credit import CREDIT_BYTES


class SpendingLimits(NamedTuple):
    """Limits on the cost of one Package of a sender."""

    refusal: str
    """Reason, for people, why paid channels are not allowed. Empty if they are allowed."""
    remaining: int
    """Credits that remain of today's `per_day` limit."""
    per_day: int
    limit: str
    """End of the sentence "2 left of 9 that …", such as "an SOS of neighbours may cost"."""
    bearer_bytes: int
    """Bytes of an item that one paid message of Cellular can carry. 0 if Cellular costs nothing."""


class AffordablePlan(NamedTuple):
    package: Package
    """The Package with only its allowed channels. If no channel is allowed, the Package has
    none."""
    withheld: dict[str, str]
    """The channels that are not allowed, and the reason for each."""
    price: int
    """Sum of the credits and the number of SMS."""
    satellite: int = 0
    """Part of the price for Satellite, in credits."""
    sms: int = 0
    """Part of the price for Cellular, in SMS. The SMS are sent only if there is no IP link."""

    @property
    def is_allowed(self) -> bool:
        """Return True if at least one channel is allowed."""
        return self.package.channels is None or bool(self.package.channels)

    @property
    def withheld_text(self) -> str:
        """Return a text with the channels that are not allowed, and the reason for each. The text
        is empty if all are allowed.
        """
        return "; ".join(f"{channel}: {reason}" for channel, reason in self.withheld.items())


def find_affordable(
    package: Package,
    outboxes: Mapping[Channel, ChannelOutbox],
    now: float,
    limits: SpendingLimits,
) -> AffordablePlan:
    """Return the Package with only the channels that the budget can pay for, the price, and the
    reason for each removed channel. `now` is Unix time.
    """
    price = satellite = sms = 0
    withheld: dict[str, str] = {}
    estimates = compute_costs(package, outboxes, now)
    for channel, cost in estimates.items():
        amount = _compute_price(channel, cost, bearer_bytes=limits.bearer_bytes)
        remainder = limits.remaining - price
        if amount and limits.refusal:
            withheld[channel] = limits.refusal
        elif amount > remainder:
            withheld[channel] = (
                f"it takes {amount} of the {remainder} left of {limits.per_day} that {limits.limit}"
            )
        else:
            price += amount
            satellite += amount * (channel is Channel.SATELLITE)
            sms += amount * (channel is Channel.CELLULAR)
    if not withheld:
        return AffordablePlan(package, {}, price, satellite, sms)
    wanted_channels = frozenset(estimates) if package.channels is None else package.channels
    channels = wanted_channels - {Channel(channel) for channel in withheld}
    return AffordablePlan(replace(package, channels=channels), withheld, price, satellite, sms)


def _compute_price(channel: Channel, cost: Cost, *, bearer_bytes: int) -> int:
    """Return the price: credits for Satellite (50 bytes count as a credit if bytes are billed), SMS
    for Cellular. Return 0 if the channel costs nothing.
    """
    if channel is Channel.SATELLITE:
        return -(-cost.bytes // CREDIT_BYTES) if cost.by_bytes else cost.credits
    if channel is Channel.CELLULAR and bearer_bytes:
        return -(-cost.bytes // bearer_bytes)
    return 0
