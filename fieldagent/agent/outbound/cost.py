"""What a Package would take on each channel, before anything is queued."""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.agent.outbound.channel_limits import price
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.delivery import legs_of
from fieldagent.package.package import Channel, Package
from fieldagent.system.lazy_named_tuple import NamedTuple


class Cost(NamedTuple):
    """What a Package takes on one channel."""

    parts: int
    """Messages that carry nothing else."""
    bytes: int
    credits: int
    """0 where bytes are paid for."""
    left: int | None
    """What may still be spent today, in credits or bytes; None without a budget."""
    by_bytes: bool = False
    """The account pays for bytes, and `bytes` are those that are billed."""


def costs(
    package: Package, outboxes: Mapping[Channel, ChannelOutbox], now: float
) -> dict[Channel, Cost]:
    """On each channel that is configured and not excluded by it. `now` is Unix time."""
    legs = legs_of(package.channels, frozenset(outboxes))
    stamped = package.stamped(now)
    found = {}
    for channel, leg in legs.items():
        if leg.status is None:
            sizes = outboxes[channel].packing.sizes(stamped, now)
            tariff = outboxes[channel].packing.queue.limits.tariff
            parts = [price(tariff, size) for size in sizes]
            spent = [part.credits for part in parts], [part.bytes for part in parts]
            left = outboxes[channel].allowance()
            found[channel] = Cost(
                len(parts), sum(spent[1]), sum(spent[0]), left, tariff.unit == "byte"
            )
    return found
