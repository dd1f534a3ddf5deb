"""What each channel takes in one transmission, and what it leaves to us."""

from __future__ import annotations

from collections.abc import Callable

from fieldagent.agent.channels.radio_modem import AIR_BYTES, AIR_BYTES_MAX
from fieldagent.agent.journal.records import Spent
from fieldagent.package.package import Channel
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.credit import credits_for
from fieldagent.wire.link import BODY_BYTES
from fieldagent.wire.sbd import MO_BYTES


def _free(size: int) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class ChannelTerms:
    size: int
    """Most bytes of one transmission."""
    fill: int
    """Bytes up to which a transmission is filled with what waits: an SOS in it goes no slower."""
    credits: Callable[[int], int]
    """What so many bytes cost."""
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


TERMS = {
    Channel.SATELLITE: ChannelTerms(
        MO_BYTES, MO_BYTES, credits_for, packs_text=True, companions=96
    ),
    Channel.CELLULAR: ChannelTerms(BODY_BYTES, 4_096, _free, authentic=True, confirms=True),
    Channel.RADIO: ChannelTerms(AIR_BYTES, AIR_BYTES_MAX, _free, confirms=True, shared=True),
}


def price(channel: Channel, size: int) -> Spent:
    """What a transmission of so many bytes costs."""
    return Spent(size, TERMS[channel].credits(size))
