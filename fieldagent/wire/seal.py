"""An envelope on the air that only its group can read: deterministic encryption, without a nonce.

A kit that is restarted, or whose card is copied back, would use a counter twice, and chance on a
small board may be poor. So the seal is a synthetic one (SIV: Rogaway and Shrimpton, "Deterministic
Authenticated-Encryption", 2006; RFC 5297 builds it of AES): a MAC over the content is the tag, and
the tag begins the key stream. Equal content gives equal bytes, and shows that much; other content
has another tag, and another stream. Both parts are HMAC-SHA256 here, the stream in counter mode
(NIST SP 800-108r1, section 4.1), as Python has no AES of its own.

| bytes | |
|---|---|
| 1 | `MARK`, which begins no envelope |
| 8 | the tag |
| rest | the envelope, combined with the stream by exclusive or |

A tagged envelope is as long.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from fieldagent.wire.tag import TAG_BYTES

MARK = b"\xe0"
"""A simple value of CBOR that nobody has assigned."""


def is_sealed(body: bytes) -> bool:
    """Return whether a packet claims to be sealed; by which key, if any, `unseal` tells."""
    return body[:1] == MARK


def seal(plain: bytes, key: bytes) -> bytes:
    """Return the envelope, sealed by a group's key: 9 bytes more, and equal for equal content."""
    tag = _tag(plain, key)
    return MARK + tag + _combined(plain, tag, key)


def unseal(body: bytes, keys: Sequence[bytes]) -> tuple[bytes, int] | None:
    """Return the envelope, and which of the keys sealed it; None if none did."""
    tag, hidden = body[1 : 1 + TAG_BYTES], body[1 + TAG_BYTES :]
    for at, key in enumerate(keys):
        plain = _combined(hidden, tag, key)
        if hmac.compare_digest(_tag(plain, key), tag):
            return plain, at
    return None


def _tag(plain: bytes, key: bytes) -> bytes:
    return hmac.digest(_derived(key, b"tag"), plain, "sha256")[:TAG_BYTES]


def _combined(content: bytes, tag: bytes, key: bytes) -> bytes:
    of_stream, size = _derived(key, b"stream"), len(content)
    blocks = (hmac.digest(of_stream, tag + n.to_bytes(2), "sha256") for n in range(-(-size // 32)))
    stream = b"".join(blocks)[:size]
    return (int.from_bytes(content) ^ int.from_bytes(stream)).to_bytes(size)


def _derived(key: bytes, what: bytes) -> bytes:
    """HKDF-Expand (RFC 5869) of the key of direction AIR."""
    return hmac.digest(key, b"fieldagent seal " + what + b"\x01", "sha256")
