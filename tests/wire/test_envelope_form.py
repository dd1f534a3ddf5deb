"""The short form: its savings, its meaning, and the refusals."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.package.package import Data, Message
from fieldagent.wire.envelope import (
    Entry,
    Receipt,
    Source,
    Unauthenticated,
    decode,
    derive_key,
    encode,
)
from fieldagent.wire.envelope_form import EnvelopeParts, decode_form, encode_array, encode_short
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.text_code import pack
from tests.wire.test_envelope import KEY, entries

TIME = 1_790_000_000
NUMBER = 50_000_000
TEXT = "Weg gesperrt, kehren um. ETA 17:30"


def make_message(number: int, time: int = TIME) -> Entry:
    return Entry(number, Message(TEXT), time)


def encode_short_form(*sent: Entry, origin: int = 0, key: bytes | None = None) -> bytes:
    return encode(sent, origin=origin, key=key, is_packed=True)


def test_short_form_adds_a_fixed_overhead_to_a_text() -> None:
    packed = pack(TEXT)
    assert isinstance(packed, bytes)
    alone = encode_short_form(make_message(NUMBER))
    assert len(alone) - len(packed) == 11
    assert len(encode_short_form(make_message(NUMBER), key=KEY)) - len(alone) == 8
    for passed, more in ((20, 4), (200, 5), (-40_000, 6)):
        two = encode_short_form(make_message(NUMBER), make_message(NUMBER + 1, TIME + passed))
        assert len(two) - len(alone) - len(packed) == more
    assert len(encode_short_form(make_message(5))) - len(packed) == 8, (
        "as the hub numbers a device's first ones"
    )


def test_sequence_is_encoded_absolutely_or_relatively_whichever_is_shorter() -> None:
    """A receipt has a number of the peer, which differs much from ours."""
    receipts = [Entry(n, Receipt(digest=b"1234"), TIME) for n in (3, 4, 70_000)]
    sent = [make_message(NUMBER), *receipts, make_message(NUMBER + 1), make_message(NUMBER - 200)]
    read = decode(encode_short_form(*sent))
    assert [each.sequence for each in read.entries] == [each.sequence for each in sent]
    assert read.entries[1:4] == tuple(receipts)


@given(st.lists(entries(), min_size=1, max_size=4), st.integers(0, 1000), st.booleans())
def test_any_envelope_survives_the_short_form(sent: list[Entry], origin: int, tagged: bool) -> None:
    body = encode(sent, origin=origin, key=KEY if tagged else None, is_packed=True)
    envelope = decode(body, keys=[bytes(32), KEY] if tagged else [])
    assert sorted(envelope.entries, key=str) == sorted(sent, key=str)
    assert (envelope.origin, envelope.tagged) == (origin, tagged)


def test_envelope_with_an_sos_uses_the_array_form() -> None:
    """Every receiver can read the array form."""
    body = encode_short_form(make_message(6), replace(make_message(7), sos=True))
    assert not decode_form(body).short
    assert decode_form(encode_short_form(make_message(6))).short


def test_time_before_the_epoch_uses_the_array_form() -> None:
    early = make_message(7, 1_000_000_000)
    assert decode(encode_short_form(early)).entries == (early,)
    assert not decode_form(encode_short_form(early)).short


def test_overlong_entry_has_no_short_form() -> None:
    assert encode_short(EnvelopeParts(0, 0, [[4, 7, 0, bytes(40_000)]]), None) is None


def test_tag_authenticates_the_short_form() -> None:
    body = bytearray(encode_short_form(make_message(7), key=KEY))
    with pytest.raises(Unauthenticated, match="missing"):
        decode(encode_short_form(make_message(7)), keys=[KEY])
    other = derive_key(bytes(32), "MT")
    with pytest.raises(Unauthenticated, match="wrong"):
        decode(bytes(body), keys=[other])
    for at in range(len(body)):
        body[at] ^= 1
        with pytest.raises(RemoteProtocolError):
            decode(bytes(body), keys=[KEY])
        body[at] ^= 1
    assert decode(bytes(body), keys=[KEY]).entries == (make_message(7),)


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "tagged"])
def test_every_truncated_short_form_raises(key: bytes | None) -> None:
    sent = [
        replace(make_message(NUMBER), to="ada", wants_receipt=True),
        Entry(NUMBER, Source(7, 9)),
        make_message(3),
    ]
    body = encode_short_form(
        *sent, Entry(NUMBER + 2, Data(bytes(200)), TIME - 90), origin=5, key=key
    )
    assert len(decode(body).entries) == 4
    for cut in range(len(body)):
        with pytest.raises(RemoteProtocolError):
            decode(body[:cut])


@given(st.binary(max_size=60), st.integers(0xC0, 0xDF))
def test_random_bytes_are_read_or_refused(rest: bytes, flags: int) -> None:
    with suppress(RemoteProtocolError):
        read = decode_form(bytes([flags]) + rest)
        assert read.short
        with suppress(RemoteProtocolError):
            decode(bytes([flags]) + rest)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("c1", "unknown short form"),
        ("c0", "middle of a number"),
        ("c8033cb60020", "origin"),
        ("c0033cb60000", "middle of an entry"),
        ("c4033cb6000387076161", "behind it"),
        ("c0033cb6000201", "middle of an entry"),
        ("c0033cb6000401200061", "number is missing"),
        ("c2033cb600020102", "middle of a number"),
        ("c0033cb600", "middle of a number"),
    ],
)
def test_damaged_short_form_raises_with_the_reason(body: str, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        decode(bytes.fromhex(body))


def test_short_and_array_forms_decode_to_the_same_parts() -> None:
    parts = EnvelopeParts(
        54_310_400, 9, [[1, 7, 0, "hi"], [[4, 8, -60, b"x"], 12, 1], [14, 8, 7, 3]]
    )
    arrays = decode_form(encode_array(parts, KEY))
    body = encode_short(parts, KEY)
    assert body is not None
    assert (
        arrays._replace(short=True) == decode_form(body) == parts._replace(tagged=True, short=True)
    )
