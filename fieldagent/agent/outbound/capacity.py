"""How much of an item one transmission holds, and how the item is cut where it needs several.

On the air a part of each packet is kept for what is said beside the item: where a station asks for
the hub, where the item is another's that goes once more, where a round of fragments ends. Whoever
repeats an item cuts it as its sender did, so nothing here depends on who cuts.
"""

from __future__ import annotations

import cbor2

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import Entry, Fragment, encode
from fieldagent.wire.errors import LocalProtocolError
from fieldagent.wire.fragments import COUNT_MAX, cut, guarded, split
from fieldagent.wire.tag import TAG_BYTES

ACK_BYTES = 28
"""Of an Ack in an envelope at most, beside its bitmap and a tag: two stations of 5 bytes each."""
MARK_BYTES = 8
"""Of a RelayRequest, and of a Source, beside their stations. Whoever repeats an item or is asked to
has a number about as long as its sender's; where it is longer, the request stays out."""
SHORT_COUNT = 23
"""Fragments up to which index and count take a byte each."""
SHORT_BYTES = 23
"""A slice up to which its head takes one byte."""


class TooLarge(Exception):
    """The item needs more fragments than may be; the text is for people."""


@dataclass(frozen=True, slots=True)
class Capacity:
    size: int
    """Most bytes of a transmission."""
    tagged: bool
    shared: bool = False
    """It goes on the air, where others repeat it."""

    @property
    def _free(self) -> int:
        return self.size - (TAG_BYTES + 1 if self.tagged else 0)

    def whole(self, origin: int) -> int:
        """Return the bytes up to which the envelope of an item of `origin` goes whole: counted
        without a tag, and as if its sender were the peer itself."""
        # An envelope of one's own tells the origin 0, and in the short form, of satellite, none.
        more = _width(origin) - (self.shared or not origin)
        return self._free - self._kept(origin) - more

    def filled(self, origin: int) -> int:
        """Return the bytes up to which others join an item."""
        return self.size - self._kept(origin)

    def _kept(self, origin: int) -> int:
        if not self.shared:
            return 0
        # A tenth is for answers.
        return max(MARK_BYTES - 1 + 2 * _width(origin), self.size // 10)

    def cut(self, entry: Entry, origin: int) -> list[Fragment]:
        """Cut an entry into its fragments. Raises TooLarge."""
        whole = encode([entry])
        if not self.shared:
            try:
                return split(whole, self._free)
            except LocalProtocolError as error:
                raise TooLarge(str(error)) from error
        needed = len(guarded(whole))
        for most in (SHORT_COUNT, self._count_max()):
            head = encode([Entry(entry.sequence, Fragment(most - 1, most, b""))], origin=origin)
            size = self._free - self._kept(origin) - len(head)
            size -= size > SHORT_BYTES
            if size > 0 and -(-needed // size) <= most:
                return cut(whole, -(-needed // size))
        raise TooLarge(f"{len(whole)} bytes are too many for packets of {self.size} bytes")

    def _count_max(self) -> int:
        """One Ack tells all that has come of an item, in one packet."""
        return min(COUNT_MAX, 8 * (self._free - ACK_BYTES))


def _width(number: int) -> int:
    """Bytes of a whole number."""
    return len(cbor2.dumps(number))
