"""Cost of a Package on each channel, before it is queued."""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.agent.outbound.channel_limits import TooLarge, compute_price
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.delivery import make_deliveries
from fieldagent.package.package import Channel, Package
from fieldagent.system.lazy_named_tuple import NamedTuple


class Cost(NamedTuple):
    """Cost of a Package on one channel."""

    parts: int
    """Number of messages that the Package needs if it is sent alone. 0 if the channel cannot carry
    the Package."""
    bytes: int
    credits: int
    """Price in credits. 0 if the operator bills bytes."""
    remaining: int | None
    """Today's remaining budget in credits or bytes. None if there is no budget."""
    by_bytes: bool = False
    """True if the operator bills bytes. Then `bytes` is the number of billed bytes."""
    refusal: str = ""
    """Reason why the channel cannot carry the Package. Empty if it can."""


def compute_costs(
    package: Package, outboxes: Mapping[Channel, ChannelOutbox], now: float
) -> dict[Channel, Cost]:
    """Return the cost of a Package on each configured channel that the Package allows. `now` is
    Unix time.
    """
    deliveries = make_deliveries(package.channels, frozenset(outboxes))
    stamped = package.with_time(now)
    estimates = {}
    for channel, delivery in deliveries.items():
        if delivery.status is None:
            tariff = outboxes[channel].packing.queue.limits.tariff
            remaining, by_bytes = outboxes[channel].compute_allowance(), tariff.unit == "byte"
            try:
                sizes = outboxes[channel].packing.list_sizes(stamped, now)
            except TooLarge as error:
                estimates[channel] = Cost(0, 0, 0, remaining, by_bytes, f"too large: {error}")
                continue
            parts = [compute_price(tariff, size) for size in sizes]
            spent = [part.credits for part in parts], [part.bytes for part in parts]
            estimates[channel] = Cost(len(parts), sum(spent[1]), sum(spent[0]), remaining, by_bytes)
    return estimates
