"""The frame of kit and hub in an SMS."""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fieldagent.wire import sms_alphabet, sms_frame
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.proof import digest_token
from fieldagent.wire.sms_frame import (
    ENVELOPE_BYTES,
    PARTS_DOWN,
    SmsFrame,
    compute_envelope_bytes_down,
)

DIGEST = digest_token("a-link-token")
NAME = sms_frame.derive_name(DIGEST)
UP, DOWN = sms_frame.derive_key_up(DIGEST), sms_frame.derive_key_down(DIGEST)


@given(
    some.binary(max_size=compute_envelope_bytes_down(PARTS_DOWN)),
    some.lists(some.binary(min_size=8, max_size=8), max_size=15),
)
def test_sms_frame_survives_encoding(envelope: bytes, acknowledged: list[bytes]) -> None:
    frame = SmsFrame(NAME, envelope, tuple(acknowledged))
    text = frame.encode_text(UP)
    assert sms_frame.is_frame(text)
    assert sms_alphabet.choose_alphabet(text) is sms_alphabet.Alphabet.GSM7
    result = sms_frame.parse_frame(f" {text}\n")
    assert (result.name, result.envelope, result.acknowledged) == (
        NAME,
        envelope,
        tuple(acknowledged),
    )
    assert result.is_tagged_by(UP)
    assert result.tag == frame.tag_by(UP)


def test_documented_sms_vector_matches_the_code() -> None:
    """The vector is in docs/how-to/sms.md."""
    frame = SmsFrame(NAME, bytes.fromhex("8301000081"), (bytes(range(8)),))
    text = frame.encode_text(UP)
    plain = bytes.fromhex("11") + DIGEST[:6] + bytes(range(8)) + bytes.fromhex("8301000081")
    assert base64.b64decode(text[3:] + "==")[:-8] == plain
    assert text == VECTOR


VECTOR = "fa:EVsOZHru3QABAgMEBQYHgwEAAIHn8S9Qr6YoIg"


@pytest.mark.parametrize(
    ("size", "acknowledged", "parts"),
    [
        (ENVELOPE_BYTES, 0, 1),
        (ENVELOPE_BYTES - 8, 1, 1),
        *((compute_envelope_bytes_down(parts), 4, parts) for parts in range(2, PARTS_DOWN + 1)),
    ],
)
def test_full_frame_fills_its_sms_exactly(size: int, acknowledged: int, parts: int) -> None:
    frame = SmsFrame(NAME, bytes(size), (bytes(8),) * acknowledged)
    assert sms_alphabet.count_parts(frame.encode_text(UP)) == parts
    longer = SmsFrame(NAME, bytes(size + 1), (bytes(8),) * acknowledged)
    assert sms_alphabet.count_parts(longer.encode_text(UP)) == parts + 1


def test_frame_returned_to_its_sender_is_not_authenticated() -> None:
    """Returning a frame to its sender proves nothing."""
    assert not sms_frame.parse_frame(SmsFrame(NAME, b"x").encode_text(UP)).is_tagged_by(DOWN)


def test_tag_detects_every_flipped_bit() -> None:
    whole = base64.b64decode(SmsFrame(NAME, b"an envelope", (bytes(8),)).encode_text(UP)[3:] + "==")
    for at in range(8 * len(whole)):
        bent = bytearray(whole)
        bent[at // 8] ^= 1 << at % 8
        text = "fa:" + base64.b64encode(bent).decode().rstrip("=")
        with suppress(RemoteProtocolError):
            assert not sms_frame.parse_frame(text).is_tagged_by(UP)


@pytest.mark.parametrize(
    "text",
    [
        "fa:",
        "fa:short",
        "fa:" + "A" * 40 + " " + "A" * 8,
        "fa:" + "A" * 41,
        SmsFrame(NAME, b"of another version").encode_text(UP).replace("fa:E", "fa:I"),
        "fa:" + base64.b64encode(b"\x1f" + bytes(40)).decode().rstrip("="),
    ],
)
def test_malformed_frame_raises(text: str) -> None:
    assert sms_frame.is_frame(text)
    with pytest.raises(RemoteProtocolError):
        sms_frame.parse_frame(text)


def test_text_written_by_people_is_no_frame() -> None:
    assert not any(map(sms_frame.is_frame, ["OK 471123", "fabulous", "FA: is it you?", ""]))


@pytest.mark.parametrize("frame", [SmsFrame(b"short"), SmsFrame(NAME, b"", (bytes(8),) * 16)])
def test_invalid_frame_raises_at_encoding(frame: SmsFrame) -> None:
    with pytest.raises(LocalProtocolError):
        frame.encode_text(UP)
