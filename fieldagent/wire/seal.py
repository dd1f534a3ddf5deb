"""Authenticates an envelope with a tag, HMAC 256/64 over a MAC_structure (RFC 9052 section 6.3), or
encrypts it for a group's radio channel, deterministically and without a nonce.

A nonce from a counter is not possible: after a restart, or after an old copy of its card was
restored, a kit would use a value twice. A nonce from random numbers is not possible, because a
small board may have poor random numbers. So the seal uses a synthetic initialization vector (SIV:
Rogaway and Shrimpton, "Deterministic Authenticated-Encryption", 2006; RFC 5297 builds it from AES).
A MAC over the content is the tag, and the tag starts the key stream. Equal content results in equal
bytes, which reveals only that the content is equal. Different content has a different tag and a
different stream. MAC and stream are both HMAC-SHA256, the stream in counter mode (NIST SP
800-108r1, section 4.1), because Python has no AES in its library.

| bytes | |
|---|---|
| 1 | `MARK`, which begins no envelope |
| 8 | the tag |
| rest | the envelope, combined with the stream by exclusive or |

A tagged envelope has the same length.
"""

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


MARK = b"\xe0"
"""A simple value of CBOR that is not assigned."""


def is_sealed(body: bytes) -> bool:
    """Return True if a packet seems to be sealed. `unseal` shows whether a key matches."""
    return body[:1] == MARK


def seal(data: bytes, key: bytes) -> bytes:
    """Encrypt an envelope with a group's key. The result is 9 bytes longer than the envelope, and
    the same for equal content.
    """
    mac = _compute_tag(data, key)
    return MARK + mac + _combine(data, mac, key)


def unseal(body: bytes, keys: Sequence[bytes]) -> tuple[bytes, int] | None:
    """Decrypt a packet. Return the envelope and the index of the key that sealed it, or None if no
    key matches.
    """
    mac, hidden = body[1 : 1 + TAG_BYTES], body[1 + TAG_BYTES :]
    for at, key in enumerate(keys):
        plain = _combine(hidden, mac, key)
        if hmac.compare_digest(_compute_tag(plain, key), mac):
            return plain, at
    return None


def _compute_tag(data: bytes, key: bytes) -> bytes:
    return hmac.digest(_derive_key(key, b"tag"), data, "sha256")[:TAG_BYTES]


def _combine(content: bytes, mac: bytes, key: bytes) -> bytes:
    of_stream, size = _derive_key(key, b"stream"), len(content)
    blocks = (hmac.digest(of_stream, mac + n.to_bytes(2), "sha256") for n in range(-(-size // 32)))
    stream = b"".join(blocks)[:size]
    return (int.from_bytes(content) ^ int.from_bytes(stream)).to_bytes(size)


def _derive_key(key: bytes, purpose: bytes) -> bytes:
    """Return a key derived from the key of direction AIR by HKDF-Expand (RFC 5869)."""
    return hmac.digest(key, b"fieldagent seal " + purpose + b"\x01", "sha256")
