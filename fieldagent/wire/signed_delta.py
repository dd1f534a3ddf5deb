"""A program delta in a Package of kind data for a kit (`system.program_delta`), with the signature
of the builder of its programs:

    NUL "fieldagent program" 1, 74 bytes, 64 bytes, length of the comment (one byte), the comment
    in UTF-8, the delta

The 74 and the 64 bytes are the signature, and the comment is its trusted comment (`minisign_text`).
"""

from __future__ import annotations

import hashlib

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.minisign_text import (
    FIRST_BYTES,
    SECOND_BYTES,
    SignatureParts,
    split_signature,
)

MAGIC = b"\0fieldagent program\x01"
COMMENT_MAX = 255
DIGEST_BYTES = 8


class SignedDelta(NamedTuple):
    delta: bytes
    signature: SignatureParts

    def encode_payload(self) -> bytes:
        """Return the payload as bytes. Raises ValueError if the signed text is too long."""
        first, comment, second = self.signature
        text = comment.encode()
        if len(text) > COMMENT_MAX:
            raise ValueError(f"its signed text has more than {COMMENT_MAX} bytes")
        return MAGIC + first + second + bytes([len(text)]) + text + self.delta


def make_signed_delta(delta: bytes, signature: str) -> SignedDelta:
    """Return a delta with the parts of minisign's file. Raises ValueError if the file is
    invalid.
    """
    return SignedDelta(delta, split_signature(signature))


def is_signed_delta(payload: bytes) -> bool:
    """Return True if the payload starts with the magic bytes."""
    return payload.startswith(MAGIC)


def parse_payload(payload: bytes) -> SignedDelta:
    """Parse a program delta with its signature. Raises ValueError for malformed data."""
    body = payload.removeprefix(MAGIC)
    payload_end = FIRST_BYTES + SECOND_BYTES
    if body == payload or len(body) <= payload_end:
        raise ValueError("it is not a program delta with a signature")
    first, second, size = body[:FIRST_BYTES], body[FIRST_BYTES:payload_end], body[payload_end]
    text, delta = body[payload_end + 1 : payload_end + 1 + size], body[payload_end + 1 + size :]
    parts = SignatureParts(first, text.decode(), second)
    if not parts.has_valid_form() or not delta:
        raise ValueError("a delta of a program is cut short")
    return SignedDelta(delta, parts)


def compute_payload_digest(payload: bytes) -> bytes:
    """Return the 8-byte digest that identifies the payload in a command."""
    return hashlib.sha256(payload).digest()[:DIGEST_BYTES]
