"""Limits and properties of each channel, and the number of bytes of an item that fit into one
transmission. Larger items are cut into fragments.

On the air, a part of each packet is reserved for accompanying entries. These entries are a relay
request, the mark of a repeated item, and the end mark of a round of fragments. A station that
repeats an item must cut the same fragments as the sender, so the result does not depend on the
station.
"""

from __future__ import annotations

import cbor2

from fieldagent.agent.channels.air_pace import AIR_BYTES, AIR_BYTES_MAX
from fieldagent.agent.channels.contract import IP_MESSAGE_LIMITS
from fieldagent.agent.journal.records import Spent
from fieldagent.package.package import Channel
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.credit import CREDIT_TARIFF, FREE_TARIFF, Tariff
from fieldagent.wire.envelope import Entry, Fragment, encode
from fieldagent.wire.errors import LocalProtocolError
from fieldagent.wire.fragments import FRAGMENTS_MAX, add_checksum, cut_into_fragments, split
from fieldagent.wire.sbd import MO_BYTES
from fieldagent.wire.seal import TAG_BYTES


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    size: int
    """Largest transmission, in bytes."""
    fill: int
    """Size in bytes up to which other waiting entries are added to a transmission. The limit keeps
    them from delaying an SOS in it."""
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
    """Return the cost of a transmission of `size` bytes: its bytes and credits, or the billed bytes
    if the operator bills bytes.
    """
    if not tariff.booked:
        return Spent(size)
    if tariff.unit == "byte":
        return Spent(tariff.compute_units(size))
    return Spent(size, tariff.compute_units(size))


ACK_BYTES = 28
"""Size of the largest Ack in an envelope in bytes, without bitmap and tag. Such an Ack contains two
station numbers of 5 bytes each."""
MARK_BYTES = 8
"""Size of a RelayRequest and a Source in bytes, without their station numbers. The number of
another station is taken to be as long as the sender's. If it is longer and the RelayRequest does
not fit, the RelayRequest is left out."""
SHORT_COUNT = 23
"""Maximum number of fragments for which the index and the count take one byte each."""
SHORT_BYTES = 23
"""Largest fragment payload, in bytes, whose header takes one byte."""


class TooLarge(Exception):
    """The item needs more fragments than allowed. The message of the exception is for people."""


@dataclass(frozen=True, slots=True)
class Capacity:
    size: int
    """Largest transmission, in bytes."""
    tagged: bool
    shared: bool = False
    """True on the air, where other stations repeat the item."""

    @property
    def _free(self) -> int:
        return self.size - (TAG_BYTES + 1 if self.tagged else 0)

    def compute_whole(self, origin: int) -> int:
        """Return the largest item of `origin`, in bytes, that is sent without fragments. The size
        is that of the item's envelope without the tag and the origin.
        """
        # Our own envelope contains the origin 0. The short envelope for satellite contains no
        # origin.
        overhead = _compute_width(origin) - (self.shared or not origin)
        return self._free - self._compute_reserved(origin) - overhead

    def compute_filled(self, origin: int) -> int:
        """Return the size in bytes up to which other entries may be added to an item of
        `origin`.
        """
        return self.size - self._compute_reserved(origin)

    def _compute_reserved(self, origin: int) -> int:
        if not self.shared:
            return 0
        # A tenth or more is reserved for the entries that answer other stations.
        return max(MARK_BYTES - 1 + 2 * _compute_width(origin), self.size // 10)

    def cut_into_fragments(self, entry: Entry, origin: int) -> list[Fragment]:
        """Cut an entry into its fragments. Raises TooLarge if the entry needs too many
        fragments.
        """
        entry_bytes = encode([entry])
        if not self.shared:
            try:
                return split(entry_bytes, self._free)
            except LocalProtocolError as error:
                raise TooLarge(str(error)) from error
        needed = len(add_checksum(entry_bytes))
        for count_max in (SHORT_COUNT, self._count_max()):
            header = encode(
                [Entry(entry.sequence, Fragment(count_max - 1, count_max, b""))], origin=origin
            )
            size = self._free - self._compute_reserved(origin) - len(header)
            size -= size > SHORT_BYTES
            if size > 0 and -(-needed // size) <= count_max:
                return cut_into_fragments(entry_bytes, -(-needed // size))
        raise TooLarge(f"{len(entry_bytes)} bytes are too many for packets of {self.size} bytes")

    def _count_max(self) -> int:
        """Return the maximum number of fragments of an item. An Ack that fits into one packet must
        be able to list all of them.
        """
        return min(FRAGMENTS_MAX, 8 * (self._free - ACK_BYTES))


def _compute_width(number: int) -> int:
    """Return the encoded size of an integer in bytes."""
    return len(cbor2.dumps(number))
