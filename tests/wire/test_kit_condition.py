"""The state of a kit in a note over its link."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.wire import kit_status
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_condition import (
    KIND,
    POWER,
    REPORTED_HOURS,
    THROTTLED,
    UNDER_VOLTAGE,
    UNKNOWN,
    KitCondition,
    describe_throttling,
)
from fieldagent.wire.kit_note import decode
from tests.wire.test_command import STATUS

HEARD = [None] * 20 + [0, 3, None, 5]
WHOLE = KitCondition(
    STATUS, "Debian 13.1", POWER, 2, UNDER_VOLTAGE | THROTTLED << 16, -3, {"satellite": HEARD}
)
BYTES = 110
"""Maximum that docs/reference/ip-link.md promises, with both channels."""


def test_condition_survives_encoding_and_is_small() -> None:
    assert decode(WHOLE.encode()) == WHOLE
    assert decode(KitCondition(STATUS).encode()) == KitCondition(STATUS, signals={})
    both = replace(WHOLE, signals={"satellite": HEARD, "cellular": HEARD})
    assert decode(both.encode()) == both
    assert len(KitCondition(STATUS, "Debian 13.1").encode()) <= 60
    assert len(replace(both, clock=-1_700_000_000).encode()) <= BYTES


def test_present_and_past_throttling_are_distinguished() -> None:
    assert WHOLE.throttled is not None
    assert describe_throttling(WHOLE.throttled) == (["under-voltage"], ["throttled"])
    assert describe_throttling(0) == ([], [])


def test_out_of_range_value_is_encoded_as_the_bound() -> None:
    huge = replace(WHOLE, system="x" * 99, starts=10**9, throttled=2**40, clock=-(10**18))
    read = decode(replace(huge, signals={"satellite": [99] * REPORTED_HOURS}).encode())
    assert isinstance(read, KitCondition) and read.signals == {"satellite": [5] * REPORTED_HOURS}
    assert (len(read.system), read.starts, read.throttled) == (60, 1_000, 0)


def test_restart_cause_of_a_later_version_is_read_as_unknown() -> None:
    later = cbor2.loads(WHOLE.encode())
    later[3] = 200
    read = decode(cbor2.dumps([*later, "more"]))
    assert read == replace(WHOLE, cause=UNKNOWN)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (1, b"short"),
        (1, bytes([1] + [255] * 31)),
        (2, "two\nlines"),
        (2, "x" * 61),
        (2, "\x1b[2J"),
        (3, -1),
        (4, 1_001),
        (4, True),
        (5, -1),
        (5, 2**32),
        (6, 2**40 + 1),
        (6, 1.5),
        (7, None),
        (7, [["satellite", b"\x60" * 12]]),
        (7, [["satellite", b"\x00" * 11]]),
        (7, [["radio", b"\x00" * 12]]),
        (7, [["satellite", b"\x00" * 12]] * 3),
    ],
)
def test_forged_condition_is_refused(place: int, value: Any) -> None:
    forged = cbor2.loads(WHOLE.encode())
    forged[place] = value
    with pytest.raises(RemoteProtocolError):
        decode(cbor2.dumps(forged))


@pytest.mark.parametrize(("at", "value"), [(8, 101), (20, 3 << 4 | 6)])
def test_status_beyond_its_bounds_is_refused(at: int, value: int) -> None:
    """The bounds are those of the percentage and the signal bars."""
    body = bytearray(kit_status.encode(STATUS))
    body[at] = value
    with pytest.raises(RemoteProtocolError):
        kit_status.decode(bytes(body))


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.integers(),
            st.binary(max_size=40),
            st.text(),
            st.lists(st.tuples(st.text(), st.binary(max_size=12)), max_size=3),
        ),
        max_size=9,
    )
)
def test_any_condition_note_is_read_or_refused(members: list[Any]) -> None:
    try:
        read = decode(cbor2.dumps([KIND, *members]))
    except RemoteProtocolError:
        return
    assert isinstance(read, KitCondition)
