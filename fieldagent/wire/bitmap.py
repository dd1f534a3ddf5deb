"""Bitmap of arrived fragments or items. Bit i % 8 of byte i // 8, counted from the lowest bit, is 1
if number i has arrived. A digest of the arrived fragments or items follows the bits.
"""

from __future__ import annotations

from collections.abc import Set

DIGEST_BYTES = 4
"""Length of the digest in a confirmation. The item's number alone is not enough, because it may be
used for another item."""
SEVERAL_MAX = 64
"""Maximum number of items in one bitmap."""


def encode_bitmap(indexes: Set[int], count: int, digest: bytes) -> bytes:
    """Return the bitmap of `count` fragments, followed by `digest`. If `count` is 0, it is a bitmap
    of items.
    """
    bits = sum(1 << index for index in indexes)
    shortest = -(-bits.bit_length() // 8)
    size = -(-count // 8) or shortest
    return bits.to_bytes(size, "little") + digest


def decode_bitmap(bitmap: bytes, count: int) -> tuple[frozenset[int], bytes]:
    """Parse a bitmap of `count` fragments (0: of items), and return the numbers and the digest. The
    digest is empty if there are no items. Raises ValueError for malformed data.
    """
    full = -(-count // 8) if count else max(0, len(bitmap) - DIGEST_BYTES)
    bits, digest = int.from_bytes(bitmap[:full], "little"), bitmap[full:]
    sizes = (DIGEST_BYTES,) if count or bits else (0,)
    if len(digest) not in sizes or full > max(SEVERAL_MAX, count) // 8 + 1:
        raise ValueError("a digest of 4 bytes is missing")
    return frozenset(i for i in range(count or SEVERAL_MAX) if bits >> i & 1), digest
