"""Content that only its group can read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry, decode, derive_key, encode
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.seal import is_sealed, seal, unseal

KEY, OTHER = (derive_key(master, "AIR") for master in (bytes(range(32)), bytes(32)))
ENVELOPE = encode([Entry(7, Message("Camp reached"), 1_790_000_000)], origin=7)


def test_documented_sealed_vector_matches_the_code() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/on-air.md").read_text()
    assert f"`{ENVELOPE.hex()}`" in text
    assert f"`{seal(ENVELOPE, KEY).hex()}`" in text


@given(st.binary(max_size=300))
def test_sealed_envelope_opens_only_with_its_key(plain: bytes) -> None:
    assert unseal(seal(plain, KEY), [OTHER, KEY]) == (plain, 1)
    assert unseal(seal(plain, KEY), [OTHER]) is None


def test_sealed_envelope_is_as_long_as_a_tagged_one() -> None:
    tagged = encode([Entry(7, Message("Camp reached"), 1_790_000_000)], origin=7, key=KEY)
    assert len(seal(ENVELOPE, KEY)) == len(tagged)


@given(st.integers(0, 8 * (len(ENVELOPE) + 9) - 1))
def test_any_flipped_bit_is_detected(bit: int) -> None:
    turned = bytearray(seal(ENVELOPE, KEY))
    turned[bit // 8] ^= 1 << bit % 8
    body = bytes(turned)
    assert not is_sealed(body) or unseal(body, [KEY]) is None


@pytest.mark.parametrize("size", range(len(ENVELOPE) + 9))
def test_truncation_is_detected(size: int) -> None:
    assert unseal(seal(ENVELOPE, KEY)[:size], [KEY]) is None


@given(st.binary(min_size=20, max_size=100), st.data())
def test_different_contents_never_share_a_key_stream(plain: bytes, data: st.DataObject) -> None:
    """Otherwise the XOR of both would show their difference."""
    at = data.draw(st.integers(0, len(plain) - 1))
    other = plain[:at] + bytes([plain[at] ^ 1]) + plain[at + 1 :]
    one, two = (seal(each, KEY)[9:] for each in (plain, other))
    differ = [a ^ b for a, b in zip(one, two, strict=True)]
    assert differ != [a ^ b for a, b in zip(plain, other, strict=True)]


def test_sealed_envelope_is_refused_by_a_decoder_without_sealing() -> None:
    with pytest.raises(RemoteProtocolError, match=r"CBOR|envelope"):
        decode(seal(ENVELOPE, KEY))
