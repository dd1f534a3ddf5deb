"""The tag of an envelope: HMAC 256/64 over a MAC_structure (RFC 9052 section 6.3)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import cbor2

TAG_BYTES = 8
"""HMAC 256/64, RFC 9053 section 3.1."""


def tag(plain: bytes, key: bytes) -> bytes:
    # The protected header says algorithm 4.
    structure = cbor2.dumps(["MAC0", b"\xa1\x01\x04", b"", plain])
    return hmac.digest(key, structure, hashlib.sha256)[:TAG_BYTES]


def is_authentic(body: bytes, keys: Sequence[bytes]) -> bool:
    plain, found = body[:-TAG_BYTES], body[-TAG_BYTES:]
    return any(hmac.compare_digest(tag(plain, key), found) for key in keys)
