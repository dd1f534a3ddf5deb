"""The tag of an envelope: HMAC 256/64 over a MAC_structure (RFC 9052 section 6.3)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import cbor2

TAG_BYTES = 8
"""Length of the tag: HMAC 256/64, RFC 9053 section 3.1."""


def tag(data: bytes, key: bytes) -> bytes:
    """Return the tag of an envelope (`TAG_BYTES` bytes). `data` contains all bytes before the
    tag.
    """
    # The protected header is the map {1: 4}: the algorithm is number 4, HMAC 256/64.
    structure = cbor2.dumps(["MAC0", b"\xa1\x01\x04", b"", data])
    return hmac.digest(key, structure, hashlib.sha256)[:TAG_BYTES]


def find_key(body: bytes, keys: Sequence[bytes]) -> int | None:
    """Return the index of the key that matches the tag, or None if no key does."""
    plain, suffix = body[:-TAG_BYTES], body[-TAG_BYTES:]
    matching = (at for at, key in enumerate(keys) if hmac.compare_digest(tag(plain, key), suffix))
    return next(matching, None)
