"""What each channel takes in one transmission, and what it leaves to us."""

from __future__ import annotations

from fieldagent.agent.channels.ip_turn import IP_CARRIAGE
from fieldagent.agent.channels.radio_modem import AIR_BYTES, AIR_BYTES_MAX
from fieldagent.agent.journal.records import Spent
from fieldagent.package.package import Channel
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.credit import CREDITS, FREE, Tariff
from fieldagent.wire.sbd import MO_BYTES


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    size: int
    """Most bytes of one transmission."""
    fill: int
    """Bytes up to which a transmission is filled with what waits: an SOS in it goes no slower."""
    tariff: Tariff
    authentic: bool = False
    """The link itself proves who the peer is: no message bears a tag."""
    confirms: bool = False
    """The link itself tells the peer what is stored: no receipts are owed."""
    packs_text: bool = False
    """Who is at its other end reads packed text, and each byte costs."""
    companions: int = 32
    """How many further Packages are looked at to fill up one transmission."""
    shared: bool = False
    """Everybody in earshot hears a transmission, and answers with one of their own."""


LIMITS = {
    Channel.SATELLITE: ChannelLimits(MO_BYTES, MO_BYTES, CREDITS, packs_text=True, companions=96),
    Channel.CELLULAR: ChannelLimits(*IP_CARRIAGE, authentic=True, confirms=True),
    Channel.RADIO: ChannelLimits(AIR_BYTES, AIR_BYTES_MAX, FREE, confirms=True, shared=True),
}
"""Of each channel at first; a satellite modem that takes something else tells so (`Outbox.fit`)."""


def price(tariff: Tariff, size: int) -> Spent:
    """Return what a transmission of so many bytes costs: credits, or the bytes that are billed."""
    if not tariff.booked:
        return Spent(size)
    if tariff.unit == "byte":
        return Spent(tariff.units(size))
    return Spent(size, tariff.units(size))
