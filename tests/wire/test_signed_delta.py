"""A delta with its signature survives encoding, or the reason of the failure is reported."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.wire.minisign_text import SignatureParts, split_signature
from fieldagent.wire.signed_delta import (
    DIGEST_BYTES,
    MAGIC,
    SignedDelta,
    compute_payload_digest,
    is_signed_delta,
    make_signed_delta,
    parse_payload,
)

COMMENT = "fieldagent delta 0.2.0, signed 2026-11-23, expires 2027-02-21"
PARTS = SignatureParts(bytes(range(74)), COMMENT, bytes(64))


@given(st.binary(min_size=1), st.text(max_size=80).map(lambda text: "".join(text.splitlines())))
def test_signed_delta_survives_encoding(delta: bytes, comment: str) -> None:
    made = SignedDelta(delta, PARTS._replace(comment=comment))
    if len(comment.encode()) > 255:
        return
    payload = made.encode_payload()
    assert is_signed_delta(payload) and parse_payload(payload) == made
    assert len(compute_payload_digest(payload)) == DIGEST_BYTES


@given(st.integers(0, 2**31))
def test_truncated_payload_raises(size: int) -> None:
    payload = SignedDelta(b"d", PARTS).encode_payload()
    with pytest.raises(ValueError, match=r".+"):
        parse_payload(payload[: size % len(payload)])


def test_minisign_file_survives_splitting() -> None:
    text = PARTS.format_signature("of a test")
    assert split_signature(text) == PARTS
    assert text.splitlines()[2] == f"trusted comment: {COMMENT}"
    assert make_signed_delta(b"d", text).signature == PARTS


SHORT = base64.b64encode(bytes(20)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x\ny\nz\n",
        PARTS.format_signature("x").replace("AAEC", "?"),
        f"x\n{SHORT}\nx\n{SHORT}\n",
    ],
)
def test_invalid_signature_text_raises(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        split_signature(text)


def test_comment_over_255_bytes_raises() -> None:
    with pytest.raises(ValueError, match="more than 255 bytes"):
        SignedDelta(b"d", PARTS._replace(comment="x" * 256)).encode_payload()


@pytest.mark.parametrize("payload", [b"", b"a message", MAGIC[1:], b"\0fieldagent program\x02"])
def test_other_data_is_not_a_signed_delta(payload: bytes) -> None:
    assert not is_signed_delta(payload)
