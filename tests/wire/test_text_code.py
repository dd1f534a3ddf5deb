"""Packed text: shorter on messages that no table was trained on, never longer, and safe to read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fieldagent.package.package import Message, Waypoint
from fieldagent.wire.credit import credits_for
from fieldagent.wire.envelope import PACKED_BYTES, Entry, decode, digest_of, encode
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.text_code import CHARACTERS, LONGEST, PER_BYTE, pack, unpack
from tests.wire.field_messages import FIELD_MESSAGES

TIME = 1_790_000_000
NUMBER = 50_000_000
"""As a kit's journal gives them."""
SAID = [text for texts in FIELD_MESSAGES.values() for text in texts]


def packed_size(text: str) -> int:
    packed = pack(text)
    return len(packed if isinstance(packed, bytes) else packed.encode())


def test_messages_that_no_table_was_trained_on_take_less_than_half() -> None:
    ratios = {
        language: sum(map(packed_size, texts)) / sum(len(text.encode()) for text in texts)
        for language, texts in FIELD_MESSAGES.items()
    }
    assert max(ratios.values()) <= 0.5, ratios


def test_nearly_all_of_them_are_a_credit() -> None:
    spent = {
        packed: sum(
            credits_for(len(encode([Entry(NUMBER, Message(text), TIME)], packed=packed)))
            for text in SAID
        )
        for packed in (False, True)
    }
    assert (len(SAID), spent[False]) == (33, 63)
    assert spent[True] <= 35


def vectors() -> list[tuple[str, str]]:
    text = (Path(__file__).parents[2] / "docs" / "on-air.md").read_text()
    return re.findall(r"^\| text (\".*\") \| `([0-9a-f]+)` \|$", text, re.M)


@pytest.mark.parametrize(("text", "packed"), vectors())
def test_writes_and_reads_the_vectors(text: str, packed: str) -> None:
    said = text[1:-1].replace("⏎", "\n")
    assert pack(said) == bytes.fromhex(packed)
    assert unpack(bytes.fromhex(packed)) == said


def test_there_are_vectors() -> None:
    assert len(vectors()) >= 5


known = st.text(st.sampled_from(CHARACTERS + CHARACTERS.upper() + "0123456789"), max_size=200)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(known | any_text | st.sampled_from(SAID).map(str.upper))
@example("")
@example("👍 ok, à 14h30 au col 🏔️")
@example("نحن بخير")
@example("McDonald ABC aBC ÉÀ ß ẞ İ ſ ǅ")
@example("a" * 500)
@example("ok " * LONGEST)
@example("\0\x7f\ufeff\U0010ffff")
def test_every_text_comes_back_and_is_never_longer(text: str) -> None:
    packed = pack(text)
    if isinstance(packed, bytes):
        assert len(packed) < len(text.encode())
        assert unpack(packed) == text
    else:
        assert packed == text


@given(st.binary(max_size=PACKED_BYTES) | st.binary(max_size=8).map(lambda b: b + bytes(400)))
@example(b"")
@example(bytes(PACKED_BYTES))
@example(b"\xff" * PACKED_BYTES)
def test_any_bytes_are_refused_or_read_as_bounded_text(packed: bytes) -> None:
    try:
        text = unpack(packed)
    except RemoteProtocolError:
        return
    assert len(text) <= min(LONGEST, PER_BYTE * len(packed))
    text.encode()


@given(st.sampled_from(SAID), st.integers(0, 400))
def test_a_bit_that_is_wrong_raises_nothing_else(text: str, bit: int) -> None:
    packed = pack(text)
    assert isinstance(packed, bytes) or text in ("ok",)
    if isinstance(packed, bytes):
        body = bytearray(packed)
        body[bit // 8 % len(body)] ^= 1 << bit % 8
        try:
            unpack(bytes(body))
        except RemoteProtocolError as error:
            assert "packed text" in str(error)


def test_a_number_says_the_same_item_whichever_form_it_came_in() -> None:
    """Else it would be handed out twice where it came over satellite and over cellular."""
    sent = Entry(7, Waypoint(46.5, 7.25, "Hut with water", None, "Key under the stone"), TIME)
    plain, packed = (decode(encode([sent], packed=each)) for each in (False, True))
    assert plain.entries == packed.entries
    assert digest_of(plain.entries[0]) == digest_of(packed.entries[0])
    assert (plain.packed, packed.packed) == (False, True)


def test_an_sos_is_plain_for_whoever_reads_no_packed_text() -> None:
    sent = Entry(7, Message("Leg broken at the upper camp"), TIME, sos=True)
    beside = replace(sent, sequence=8, sos=False)
    assert encode([sent], packed=True) == encode([sent])
    _, _, _, sos, other = cbor2.loads(encode([sent, beside], packed=True))
    assert isinstance(sos[4], str) and isinstance(other[3], bytes)


def test_a_large_envelope_holds_no_packed_text() -> None:
    """Its texts would take long to read."""
    many = [Entry(n, Message("Arrived at camp, all well"), TIME) for n in range(60)]
    body = encode(many, packed=True)
    assert len(body) > PACKED_BYTES
    read = decode(body)
    assert not read.entries
    assert "no text" in read.not_understood[0]
