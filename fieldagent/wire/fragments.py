"""Cutting an envelope that exceeds one message into fragments, and making it whole again.

Each fragment can be sent, lost and repeated on its own (selective repeat).
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Mapping

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import Entry, Fragment, decode
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError

COUNT_MAX = 255
ASK_AFTER = 600.0
"""Seconds without a further fragment after which those that are missing are asked for."""
ASK_RARER = 4
"""How many times as long it must have been silent for the next question."""
ASK_LAST = 2 * 86_400.0
"""Seconds of silence after which nobody is asked any more."""
OVERHEAD = 18
"""Most bytes that an envelope adds around one slice, without its tag."""
_SUM_BYTES = 4


def split(envelope: bytes, capacity: int) -> list[Fragment]:
    """Split it into slices of which each fits an envelope of `capacity` bytes; a CRC-32 guards the
    whole."""
    size = capacity - OVERHEAD
    count = -(-len(guarded(envelope)) // size)
    if size < 1 or count > COUNT_MAX:
        raise LocalProtocolError(f"{len(envelope)} bytes need more than {COUNT_MAX} fragments")
    return cut(envelope, count)


def guarded(envelope: bytes) -> bytes:
    """Return what is cut: it, and a CRC-32 of it."""
    return envelope + zlib.crc32(envelope).to_bytes(_SUM_BYTES)


def cut(envelope: bytes, count: int) -> list[Fragment]:
    """Cut it into so many slices, whichever channel they are for."""
    whole = guarded(envelope)
    # Equal slices: the last is not a message of its own for a handful of bytes.
    size = -(-len(whole) // count)
    slices = [whole[i * size : (i + 1) * size] for i in range(count)]
    return [Fragment(index, count, piece) for index, piece in enumerate(slices)]


def lacking(count: int, held: Collection[Collection[int]], tries: int = 0) -> list[int]:
    """Return the indices worth sending, in that order; `held` is what each of those has who have
    any.

    First what nobody has, then what some lack. Who lacks the first may be out of reach by now:
    with each fruitless try another one is the first.
    """
    holders = Counter(index for indices in held for index in indices)
    worth = [index for index in range(count) if not held or holders[index] < len(held)]
    worth.sort(key=lambda index: holders[index])
    turn = tries % len(worth) if worth else 0
    return worth[turn:] + worth[:turn]


@dataclass(frozen=True, slots=True)
class Reassembled:
    """What came in fragments, whole again."""

    envelope: bytes
    entries: list[Entry]
    fragments: list[Entry]
    """As they came: should one of them come again, it is a duplicate from now on."""
    not_understood: list[str]


def reassemble(sequence: int, count: int, slices: Mapping[int, bytes]) -> Reassembled | None:
    """Make it whole of the slices that are stored; None while some lack.

    RemoteProtocolError where they do not belong together, or make nothing that can be read: some
    are of another item that had this number. Whoever stores them keeps the newest alone, so that
    the others are asked for.
    """
    if len(slices) < count:
        return None
    envelope = join(slices)
    read = decode(envelope)
    return Reassembled(
        envelope,
        # A fragment within fragments would be a peer's way to make us recurse.
        [entry for entry in read.entries if not isinstance(entry.content, Fragment)],
        [Entry(sequence, Fragment(index, count, slice_)) for index, slice_ in slices.items()],
        list(read.not_understood),
    )


def join(slices: Mapping[int, bytes]) -> bytes:
    """Join all its slices to the envelope; RemoteProtocolError where they do not belong
    together."""
    whole = b"".join(slices[index] for index in sorted(slices))
    envelope, guard = whole[:-_SUM_BYTES], whole[-_SUM_BYTES:]
    if zlib.crc32(envelope).to_bytes(_SUM_BYTES) != guard:
        raise RemoteProtocolError("the fragments do not belong together: wrong CRC-32")
    return envelope
