"""What a Package would take on each channel, before anything is queued."""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.agent.outbound.capacity import TooLarge
from fieldagent.agent.outbound.channel_limits import price
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.delivery import legs_of
from fieldagent.package.package import Channel, Package
from fieldagent.system.lazy_named_tuple import NamedTuple


class Cost(NamedTuple):
    """What a Package takes on one channel."""

    parts: int
    """Messages that carry nothing else; 0 of what the channel cannot carry."""
    bytes: int
    credits: int
    """0 where bytes are paid for."""
    left: int | None
    """What may still be spent today, in credits or bytes; None without a budget."""
    by_bytes: bool = False
    """The account pays for bytes, and `bytes` are those that are billed."""
    cannot: str = ""
    """Why the channel cannot carry it."""


def costs(
    package: Package, outboxes: Mapping[Channel, ChannelOutbox], now: float
) -> dict[Channel, Cost]:
    """Return what a Package costs on each channel that is configured and not excluded by it. `now`
    is Unix time."""
    legs = legs_of(package.channels, frozenset(outboxes))
    stamped = package.stamped(now)
    estimates = {}
    for channel, leg in legs.items():
        if leg.status is None:
            tariff = outboxes[channel].packing.queue.limits.tariff
            left, by_bytes = outboxes[channel].allowance(), tariff.unit == "byte"
            try:
                sizes = outboxes[channel].packing.sizes(stamped, now)
            except TooLarge as error:
                estimates[channel] = Cost(0, 0, 0, left, by_bytes, f"too large: {error}")
                continue
            parts = [price(tariff, size) for size in sizes]
            spent = [part.credits for part in parts], [part.bytes for part in parts]
            estimates[channel] = Cost(len(parts), sum(spent[1]), sum(spent[0]), left, by_bytes)
    return estimates
