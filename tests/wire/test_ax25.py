"""AX.25 UI frames: the bytes of the specification's figures, round trips, and damage."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.wire.ax25 import Callsign, Frame, decode, encode, parse_callsign
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError

calls = st.builds(Callsign, st.from_regex(r"[A-Z0-9]{1,6}", fullmatch=True), st.integers(0, 15))
frames = st.builds(
    Frame, calls, calls, st.binary(max_size=256), st.lists(calls, max_size=8).map(tuple)
)

# NJ7P to N7LEM, as the addresses of section 3.12's figure: shifted characters, SSID octets.
ADDRESSES = "9c6e988a9a40e0" + "9c946ea0404061"


def test_ui_frame_has_the_bytes_of_the_specification() -> None:
    frame = Frame(Callsign("NJ7P"), Callsign("N7LEM"), b"hi")
    assert encode(frame).hex() == ADDRESSES + "03f0" + b"hi".hex()


@given(frames)
def test_frame_survives_encoding(frame: Frame) -> None:
    assert decode(encode(frame)) == frame


@pytest.mark.parametrize(
    ("rest", "is_ours"),
    [("03f0", True), ("13f0", True), ("03cf", False), ("3f", False), ("00f0", False), ("", False)],
)
def test_frames_other_than_ui_without_layer_3_are_ignored(rest: str, is_ours: bool) -> None:
    assert (decode(bytes.fromhex(ADDRESSES + rest)) is not None) is is_ours


@pytest.mark.parametrize(
    "damaged",
    ["", ADDRESSES[:-2], ADDRESSES[:14], "9c6e988a9a40e1", "00" * 14 + "03f0", "9c" * 90],
)
def test_damaged_addresses_raise(damaged: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(bytes.fromhex(damaged))


@given(st.binary(max_size=100))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        decode(data)


@pytest.mark.parametrize(
    ("text", "call"), [("N0CALL", Callsign("N0CALL")), ("DB0ABC-15", Callsign("DB0ABC", 15))]
)
def test_call_sign_is_read_and_formatted(text: str, call: Callsign) -> None:
    assert parse_callsign(text) == call
    assert str(call) == text


@pytest.mark.parametrize("text", ["", "n0call", "N0CALL-16", "TOOLONG", "A-", "A-01", "Ä"])
def test_invalid_call_sign_raises(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        parse_callsign(text)


@pytest.mark.parametrize(
    "frame",
    [
        Frame(Callsign("A"), Callsign("B"), bytes(257)),
        Frame(Callsign("A"), Callsign("B"), b"", (Callsign("C"),) * 9),
        Frame(Callsign("TOOLONG"), Callsign("B"), b""),
        Frame(Callsign("A"), Callsign("B", 16), b""),
    ],
)
def test_content_beyond_the_limits_of_a_frame_raises(frame: Frame) -> None:
    with pytest.raises(LocalProtocolError):
        encode(frame)
