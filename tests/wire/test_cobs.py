"""COBS compared with PyPI's `cobs`, and the deframer with the faults of a serial line."""

from __future__ import annotations

from contextlib import suppress

import pytest
from cobs import cobs as other  # type: ignore[import-untyped]
from hypothesis import example, given
from hypothesis import strategies as st

from fieldagent.wire.cobs import CobsDeframer, decode, encode
from fieldagent.wire.errors import RemoteProtocolError

frames = st.binary(max_size=600) | st.lists(st.sampled_from([0, 1, 255]), max_size=600).map(bytes)


@given(frames)
@example(b"")
@example(b"\x01" * 254)
@example(b"\x01" * 254 + b"\x00")
@example(b"\x00" + b"\x01" * 508)
def test_encoding_agrees_with_an_independent_implementation(frame: bytes) -> None:
    assert 0 not in encode(frame)
    assert other.decode(encode(frame)) == frame
    assert decode(other.encode(frame)) == frame
    assert decode(encode(frame)) == frame
    assert len(encode(frame)) <= len(frame) + 1 + len(frame) // 254


@given(st.binary(max_size=300))
def test_random_bytes_are_read_or_refused(coded: bytes) -> None:
    with suppress(RemoteProtocolError):
        decode(coded)


@pytest.mark.parametrize("coded", [b"\x00", b"\x03\x01", b"\xff\x01", b"\x02\x00", b"\x01\x05a"])
def test_truncated_frame_raises(coded: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(coded)


@given(st.lists(frames.filter(bool), max_size=6), st.integers(1, 40))
def test_frames_are_found_in_any_segmentation(sent: list[bytes], size: int) -> None:
    stream = b"".join(encode(frame) + b"\x00" for frame in sent)
    deframer = CobsDeframer(1000)
    pieces: list[bytes] = []
    for at in range(0, len(stream), size):
        pieces += deframer.receive_data(stream[at : at + size])
    assert [decode(coded) for coded in pieces] == sent


@given(st.binary(max_size=50), frames.filter(bool))
def test_frame_after_noise_is_read(noise: bytes, frame: bytes) -> None:
    pieces = list(CobsDeframer(1000).receive_data(noise + b"\x00" + encode(frame) + b"\x00"))
    assert decode(pieces[-1]) == frame


def test_endless_frame_uses_no_memory_and_the_next_is_read() -> None:
    deframer = CobsDeframer(512)
    for _ in range(1000):
        assert list(deframer.receive_data(b"\x05" * 100)) == []
    assert list(deframer.receive_data(b"\x00" + encode(b"ok") + b"\x00")) == [encode(b"ok")]
    assert deframer.overlong == 1
