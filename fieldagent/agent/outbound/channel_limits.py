"""Limits and properties of each channel."""

from __future__ import annotations

from fieldagent.agent.channels.air_pace import AIR_BYTES, AIR_BYTES_MAX
from fieldagent.agent.channels.ip_turn import IP_MESSAGE_LIMITS
from fieldagent.agent.journal.records import Spent
from fieldagent.package.package import Channel
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.credit import CREDIT_TARIFF, FREE_TARIFF, Tariff
from fieldagent.wire.sbd import MO_BYTES


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    size: int
    """Largest transmission, in bytes."""
    fill: int
    """Size in bytes up to which a transmission is filled with waiting entries. The size is small,
    so that the transmission does not delay an SOS in it."""
    tariff: Tariff
    authentic: bool = False
    """True if the link itself authenticates the peer, so that messages have no tag."""
    confirms: bool = False
    """True if the link itself confirms stored items, so that no receipts are needed."""
    packs_text: bool = False
    """True if the receiver reads packed text, and each byte costs credits or air time."""
    companions: int = 32
    """Maximum number of other Packages to consider for one transmission."""
    shared: bool = False
    """True if all stations in range receive a transmission, and acknowledge it with their own
    transmissions."""


LIMITS = {
    Channel.SATELLITE: ChannelLimits(
        MO_BYTES, MO_BYTES, CREDIT_TARIFF, packs_text=True, companions=96
    ),
    Channel.CELLULAR: ChannelLimits(*IP_MESSAGE_LIMITS, authentic=True, confirms=True),
    Channel.RADIO: ChannelLimits(
        AIR_BYTES, AIR_BYTES_MAX, FREE_TARIFF, confirms=True, packs_text=True, shared=True
    ),
}
"""Initial limits of each channel. The driver replaces them if the modem has other limits
(`Outbox.set_limits`)."""


def compute_price(tariff: Tariff, size: int) -> Spent:
    """Return the cost of a transmission of `size` bytes: credits, or the billed bytes."""
    if not tariff.booked:
        return Spent(size)
    if tariff.unit == "byte":
        return Spent(tariff.compute_units(size))
    return Spent(size, tariff.compute_units(size))
