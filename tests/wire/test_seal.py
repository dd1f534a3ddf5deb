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


def test_the_vector_is_the_one_described() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/on-air.md").read_text()
    assert f"`{ENVELOPE.hex()}`" in text
    assert f"`{seal(ENVELOPE, KEY).hex()}`" in text


@given(st.binary(max_size=300))
def test_who_has_the_key_reads_it(plain: bytes) -> None:
    assert unseal(seal(plain, KEY), [OTHER, KEY]) == (plain, 1)
    assert unseal(seal(plain, KEY), [OTHER]) is None


def test_it_takes_the_bytes_of_a_tag() -> None:
    tagged = encode([Entry(7, Message("Camp reached"), 1_790_000_000)], origin=7, key=KEY)
    assert len(seal(ENVELOPE, KEY)) == len(tagged)


@given(st.integers(0, 8 * (len(ENVELOPE) + 9) - 1))
def test_any_bit_that_is_turned_is_noticed(bit: int) -> None:
    turned = bytearray(seal(ENVELOPE, KEY))
    turned[bit // 8] ^= 1 << bit % 8
    body = bytes(turned)
    assert not is_sealed(body) or unseal(body, [KEY]) is None


@pytest.mark.parametrize("size", range(len(ENVELOPE) + 9))
def test_what_is_cut_off_is_noticed(size: int) -> None:
    assert unseal(seal(ENVELOPE, KEY)[:size], [KEY]) is None


@given(st.binary(min_size=20, max_size=100), st.data())
def test_no_two_contents_share_a_stream(plain: bytes, data: st.DataObject) -> None:
    """Otherwise the combination of both would show their difference."""
    at = data.draw(st.integers(0, len(plain) - 1))
    other = plain[:at] + bytes([plain[at] ^ 1]) + plain[at + 1 :]
    one, two = (seal(each, KEY)[9:] for each in (plain, other))
    differ = [a ^ b for a, b in zip(one, two, strict=True)]
    assert differ != [a ^ b for a, b in zip(plain, other, strict=True)]


def test_a_kit_of_before_takes_it_for_no_envelope() -> None:
    with pytest.raises(RemoteProtocolError, match=r"CBOR|envelope"):
        decode(seal(ENVELOPE, KEY))
