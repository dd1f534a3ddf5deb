"""Each decoder that anonymous callers can reach refuses CBOR in a form that our code does not
write.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.wire import envelope
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.link import IpLink, LinkHello
from fieldagent.wire.strict_cbor import ITEMS_MAX, decode_single

BIGNUM = b"\xc2" + cbor2.dumps(b"\xff" * 65_000)
HOSTILE = {
    "a bignum": BIGNUM,
    "a negative bignum": b"\xc3" + BIGNUM[1:],
    "a bignum in an array": b"\x82" + BIGNUM + b"\x01",
    "a decimal fraction": b"\xc4" + cbor2.dumps([-2, 27315]),
    "a bigfloat": b"\xc5" + cbor2.dumps([10**6, 1]),
    "a time": b"\xc1\x1a\x51\x4b\x67\xb0",
    "a pattern": b"\xd8\x23" + cbor2.dumps("(a+)+$"),
    "what holds itself": b"\xd8\x1c\x81\xd8\x1d\x00",
    "a tag of 64 bits": b"\xdb" + b"\xff" * 8 + b"\x00",
    "undefined": b"\xf7",
    "a simple value": b"\xf8\xff",
    "an unassigned one": b"\xe0",
    "bytes without a length": b"\x5f\x41\x00\xff",
    "an array without a length": b"\x9f\x01\xff",
    "a map without a length": b"\xbf\xff",
    "a break": b"\xff",
    "a reserved head": b"\x1c",
    "arrays in arrays": b"\x81" * 65_000 + b"\x01",
    "more items than fit": cbor2.dumps([1] * 65_000),
    "an array longer than all": b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff",
    "bytes longer than all": b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff",
    "a head cut short": b"\x1b\x00",
    "nothing": b"",
    "no UTF-8": b"\x61\xff",
    "an acknowledgement with a byte behind it": b"\x82\x01\x01\x00",
    "an envelope with another behind it": b"\x84\x01\x00\x00\x80" * 2,
}


def receive_over_link(body: bytes) -> None:
    IpLink(LinkHello()).receive(body)


def in_an_envelope(body: bytes) -> None:
    envelope.decode(b"\x84" + body + b"\x00\x00\x80")


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(
    "read", [decode_single, envelope.decode, in_an_envelope, receive_over_link]
)
def test_hostile_cbor_is_refused_within_a_second(name: str, read: Callable[[bytes], Any]) -> None:
    before = time.thread_time()
    with pytest.raises(RemoteProtocolError):
        read(HOSTILE[name])
    assert time.thread_time() - before < 1


ours = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.binary()
    | st.text()
    | st.floats(allow_nan=False),
    lambda children: st.lists(children, max_size=4),
    max_leaves=10,
)


@given(ours, st.binary(min_size=1, max_size=4))
def test_own_cbor_is_read_only_without_trailing_data(value: Any, behind: bytes) -> None:
    data = cbor2.dumps(value)
    with pytest.raises(RemoteProtocolError):
        decode_single(data + behind)
    try:
        assert decode_single(data) == cbor2.loads(data) == value
    except RemoteProtocolError as error:
        assert "nested deeper" in str(error)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        value = decode_single(data)
    except RemoteProtocolError:
        return
    assert cbor2.dumps(value) is not None


def test_full_message_of_positions_is_read() -> None:
    position = [4, 2**31, 470_000_000, 85_000_000, 86_400, 4000, 12, 270]
    entries = [position] * 2_200
    items = [1, 2**31, 0, *entries]
    assert len(cbor2.dumps(items)) > 60_000
    assert sum(len(each) + 1 for each in entries) < ITEMS_MAX
    assert decode_single(cbor2.dumps(items)) == items
