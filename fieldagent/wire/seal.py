"""Encrypts envelopes for a group's radio channel, deterministically and without a nonce.

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

import hmac
from collections.abc import Sequence

from fieldagent.wire.tag import TAG_BYTES

MARK = b"\xe0"
"""A simple value of CBOR that is not assigned."""


def is_sealed(body: bytes) -> bool:
    """Return True if a packet seems to be sealed. `unseal` shows whether a key matches."""
    return body[:1] == MARK


def seal(data: bytes, key: bytes) -> bytes:
    """Encrypt an envelope with a group's key. The result is 9 bytes longer than the envelope, and
    the same for equal content.
    """
    tag = _tag(data, key)
    return MARK + tag + _combine(data, tag, key)


def unseal(body: bytes, keys: Sequence[bytes]) -> tuple[bytes, int] | None:
    """Decrypt a packet. Return the envelope and the index of the key that sealed it, or None if no
    key matches.
    """
    tag, hidden = body[1 : 1 + TAG_BYTES], body[1 + TAG_BYTES :]
    for at, key in enumerate(keys):
        plain = _combine(hidden, tag, key)
        if hmac.compare_digest(_tag(plain, key), tag):
            return plain, at
    return None


def _tag(data: bytes, key: bytes) -> bytes:
    return hmac.digest(_derive_key(key, b"tag"), data, "sha256")[:TAG_BYTES]


def _combine(content: bytes, tag: bytes, key: bytes) -> bytes:
    of_stream, size = _derive_key(key, b"stream"), len(content)
    blocks = (hmac.digest(of_stream, tag + n.to_bytes(2), "sha256") for n in range(-(-size // 32)))
    stream = b"".join(blocks)[:size]
    return (int.from_bytes(content) ^ int.from_bytes(stream)).to_bytes(size)


def _derive_key(key: bytes, purpose: bytes) -> bytes:
    """Return a key derived from the key of direction AIR by HKDF-Expand (RFC 5869)."""
    return hmac.digest(key, b"fieldagent seal " + purpose + b"\x01", "sha256")
