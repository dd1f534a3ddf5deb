"""Fragments of an envelope that is larger than one message: splitting and reassembly.

Each fragment can be sent, lost and repeated separately (selective repeat).
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Mapping

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import Entry, Fragment, decode
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError

FRAGMENTS_MAX = 255
ASK_AFTER_S = 600.0
"""Seconds without a new fragment after which the missing fragments are requested."""
SILENCE_GROWTH_FACTOR = 4
"""Factor by which the silence before a request is longer than before the previous request."""
ASK_UNTIL_S = 2 * 86_400.0
"""Seconds of silence after which requests stop."""
OVERHEAD_BYTES = 18
"""Maximum bytes that an envelope adds to one fragment, without the envelope's tag."""
_SUM_BYTES = 4


def split(envelope: bytes, capacity: int) -> list[Fragment]:
    """Split an envelope into fragments. Each of them fits into an envelope of `capacity` bytes. A
    CRC-32 protects the whole envelope. Raises LocalProtocolError if more than FRAGMENTS_MAX
    fragments are needed.
    """
    size = capacity - OVERHEAD_BYTES
    count = -(-len(add_checksum(envelope)) // size)
    if size < 1 or count > FRAGMENTS_MAX:
        raise LocalProtocolError(f"{len(envelope)} bytes need more than {FRAGMENTS_MAX} fragments")
    return cut_into_fragments(envelope, count)


def add_checksum(envelope: bytes) -> bytes:
    """Return the envelope with its CRC-32. This is the data that is split into fragments."""
    return envelope + zlib.crc32(envelope).to_bytes(_SUM_BYTES)


def cut_into_fragments(envelope: bytes, count: int) -> list[Fragment]:
    """Split an envelope into `count` fragments, for any channel."""
    envelope_with_checksum = add_checksum(envelope)
    # Use equal sizes, so that the last fragment is not a message of a few bytes.
    size = -(-len(envelope_with_checksum) // count)
    slices = [envelope_with_checksum[i * size : (i + 1) * size] for i in range(count)]
    return [Fragment(index, count, piece) for index, piece in enumerate(slices)]


def find_missing_fragments(
    count: int, stored_indexes: Collection[Collection[int]], tries: int = 0
) -> list[int]:
    """Return the indexes of the fragments to send, in order. `stored_indexes` contains, for each
    receiver that has stored fragments, the indexes of these fragments.

    Fragments that no receiver has come first, then fragments that some receivers are missing. A
    receiver that is missing the first fragment may now be out of range. So after each attempt
    without progress (`tries`), the order starts with another index.
    """
    holders = Counter(index for indices in stored_indexes for index in indices)
    worth = [
        index
        for index in range(count)
        if not stored_indexes or holders[index] < len(stored_indexes)
    ]
    worth.sort(key=lambda index: holders[index])
    turn = tries % len(worth) if worth else 0
    return worth[turn:] + worth[:turn]


@dataclass(frozen=True, slots=True)
class ReassembledItem:
    """An envelope that was reassembled from its fragments, and its entries."""

    envelope: bytes
    entries: list[Entry]
    fragments: list[Entry]
    """The fragments, each as an entry of its own, by which a repeated fragment is recognised as a
    duplicate."""
    not_understood: list[str]


def reassemble(sequence: int, count: int, slices: Mapping[int, bytes]) -> ReassembledItem | None:
    """Reassemble an envelope from stored fragments. Return None while fragments are missing.

    Raises RemoteProtocolError if the fragments do not fit together, because some belong to another
    item with the same number. The caller must then keep only the newest fragment, so that the other
    fragments are requested again.
    """
    if len(slices) < count:
        return None
    envelope = join(slices)
    decoded = decode(envelope)
    return ReassembledItem(
        envelope,
        # Refuse fragments inside fragments, because a peer could cause a recursion with them.
        [entry for entry in decoded.entries if not isinstance(entry.content, Fragment)],
        [Entry(sequence, Fragment(index, count, slice_)) for index, slice_ in slices.items()],
        list(decoded.not_understood),
    )


def join(slices: Mapping[int, bytes]) -> bytes:
    """Join the payloads of all fragments into the envelope. Raises RemoteProtocolError if they do
    not fit together.
    """
    joined = b"".join(slices[index] for index in sorted(slices))
    envelope, guard = joined[:-_SUM_BYTES], joined[-_SUM_BYTES:]
    if zlib.crc32(envelope).to_bytes(_SUM_BYTES) != guard:
        raise RemoteProtocolError("the fragments do not belong together: wrong CRC-32")
    return envelope
