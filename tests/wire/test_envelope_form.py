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
from fieldagent.wire.envelope_form import EnvelopeParts, read_form, write_array, write_short
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.text_code import pack
from tests.wire.test_envelope import KEY, entries

TIME = 1_790_000_000
NUMBER = 50_000_000
TEXT = "Weg gesperrt, kehren um. ETA 17:30"


def said(number: int, time: int = TIME) -> Entry:
    return Entry(number, Message(TEXT), time)


def short(*sent: Entry, origin: int = 0, key: bytes | None = None) -> bytes:
    return encode(sent, origin=origin, key=key, is_packed=True)


def test_what_a_message_takes_beside_its_text() -> None:
    packed = pack(TEXT)
    assert isinstance(packed, bytes)
    alone = short(said(NUMBER))
    assert len(alone) - len(packed) == 11
    assert len(short(said(NUMBER), key=KEY)) - len(alone) == 8
    for passed, more in ((20, 4), (200, 5), (-40_000, 6)):
        two = short(said(NUMBER), said(NUMBER + 1, TIME + passed))
        assert len(two) - len(alone) - len(packed) == more
    assert len(short(said(5))) - len(packed) == 8, "as the hub numbers a device's first ones"


def test_a_number_is_told_in_the_shorter_way() -> None:
    """A receipt has a number of the peer, which is far away."""
    receipts = [Entry(n, Receipt(digest=b"1234"), TIME) for n in (3, 4, 70_000)]
    sent = [said(NUMBER), *receipts, said(NUMBER + 1), said(NUMBER - 200)]
    read = decode(short(*sent))
    assert [each.sequence for each in read.entries] == [each.sequence for each in sent]
    assert read.entries[1:4] == tuple(receipts)


@given(st.lists(entries(), min_size=1, max_size=4), st.integers(0, 1000), st.booleans())
def test_whatever_goes_over_satellite_comes_back(
    sent: list[Entry], origin: int, tagged: bool
) -> None:
    body = encode(sent, origin=origin, key=KEY if tagged else None, is_packed=True)
    envelope = decode(body, keys=[bytes(32), KEY] if tagged else [])
    assert sorted(envelope.entries, key=str) == sorted(sent, key=str)
    assert (envelope.origin, envelope.tagged) == (origin, tagged)


def test_an_sos_makes_all_beside_it_an_array() -> None:
    """Each receiver can read it."""
    body = short(said(6), replace(said(7), sos=True))
    assert not read_form(body).short
    assert read_form(short(said(6))).short


def test_a_moment_before_the_zero_of_time_goes_as_an_array() -> None:
    early = said(7, 1_000_000_000)
    assert decode(short(early)).entries == (early,)
    assert not read_form(short(early)).short


def test_an_entry_that_is_too_long_for_it_is_none_of_it() -> None:
    assert write_short(EnvelopeParts(0, 0, [[4, 7, 0, bytes(40_000)]]), None) is None


def test_who_sends_it_proves_that_by_the_tag() -> None:
    body = bytearray(short(said(7), key=KEY))
    with pytest.raises(Unauthenticated, match="missing"):
        decode(short(said(7)), keys=[KEY])
    other = derive_key(bytes(32), "MT")
    with pytest.raises(Unauthenticated, match="wrong"):
        decode(bytes(body), keys=[other])
    for at in range(len(body)):
        body[at] ^= 1
        with pytest.raises(RemoteProtocolError):
            decode(bytes(body), keys=[KEY])
        body[at] ^= 1
    assert decode(bytes(body), keys=[KEY]).entries == (said(7),)


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "tagged"])
def test_every_cut_is_refused(key: bytes | None) -> None:
    sent = [
        replace(said(NUMBER), to="ada", wants_receipt=True),
        Entry(NUMBER, Source(7, 9)),
        said(3),
    ]
    body = short(*sent, Entry(NUMBER + 2, Data(bytes(200)), TIME - 90), origin=5, key=key)
    assert len(decode(body).entries) == 4
    for cut in range(len(body)):
        with pytest.raises(RemoteProtocolError):
            decode(body[:cut])


@given(st.binary(max_size=60), st.integers(0xC0, 0xDF))
def test_garbage_is_read_or_refused(rest: bytes, flags: int) -> None:
    with suppress(RemoteProtocolError):
        read = read_form(bytes([flags]) + rest)
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
def test_what_is_damaged_says_how(body: str, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        decode(bytes.fromhex(body))


def test_a_form_of_each_says_the_same() -> None:
    parts = EnvelopeParts(
        54_310_400, 9, [[1, 7, 0, "hi"], [[4, 8, -60, b"x"], 12, 1], [14, 8, 7, 3]]
    )
    arrays = read_form(write_array(parts, KEY))
    body = write_short(parts, KEY)
    assert body is not None
    assert arrays._replace(short=True) == read_form(body) == parts._replace(tagged=True, short=True)
