"""Which of several have arrived: bit i of byte i/8 is number i, and behind the bits stands a digest
of those.
"""

from __future__ import annotations

from collections.abc import Set

DIGEST_BYTES = 4
"""Of an item, in what confirms it: a number alone may have been another item's."""
SEVERAL_MAX = 64
"""Items of which one bitmap tells."""


def write_bitmap(arrived: Set[int], count: int, digest: bytes) -> bytes:
    """Write the bitmap of so many fragments; of items where `count` is 0."""
    bits = sum(1 << index for index in arrived)
    shortest = -(-bits.bit_length() // 8)
    size = -(-count // 8) or shortest
    return bits.to_bytes(size, "little") + digest


def read_bitmap(bitmap: bytes, count: int) -> tuple[frozenset[int], bytes]:
    """Return the numbers, and the digest: none of items where there are none. Raises ValueError."""
    full = -(-count // 8) if count else max(0, len(bitmap) - DIGEST_BYTES)
    bits, digest = int.from_bytes(bitmap[:full], "little"), bitmap[full:]
    sizes = (DIGEST_BYTES,) if count or bits else (0,)
    if len(digest) not in sizes or full > max(SEVERAL_MAX, count) // 8 + 1:
        raise ValueError("no digest of 4 bytes where one belongs")
    return frozenset(i for i in range(count or SEVERAL_MAX) if bits >> i & 1), digest
