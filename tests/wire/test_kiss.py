"""KISS frames: round trips, the faults of a serial line, and Dire Wolf's query."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.wire import kiss
from fieldagent.wire.errors import LocalProtocolError

contents = st.binary(max_size=300) | st.lists(
    st.sampled_from([0xC0, 0xDB, 0xDC, 0xDD]), max_size=60
).map(bytes)


@given(st.lists(contents, max_size=6), st.integers(1, 40))
def test_frames_are_found_in_any_segmentation(sent: list[bytes], size: int) -> None:
    stream = b"".join(kiss.encode(content) for content in sent)
    deframer = kiss.KissDeframer()
    frames: list[tuple[int, bytes]] = []
    for at in range(0, len(stream), size):
        frames += deframer.receive_data(stream[at : at + size])
    assert frames == [(kiss.DATA, content) for content in sent]
    assert deframer.damaged == 0


@pytest.mark.parametrize(
    ("arguments", "frame"),
    [
        ((b"TEST",), "c00054455354c0"),
        ((b"\xc0\xdb",), "c000dbdcdbddc0"),
        ((b"Hello", kiss.DATA, 5), "c05048656c6c6fc0"),
        ((b"\x32", kiss.TX_DELAY), "c00132c0"),
        ((kiss.QUERY, kiss.SET_HARDWARE), "c00654584255463ac0"),
    ],
)
def test_frames_match_the_kiss_paper_and_the_dire_wolf_query(
    arguments: tuple[bytes], frame: str
) -> None:
    assert kiss.encode(*arguments).hex() == frame


@pytest.mark.parametrize(("command", "port"), [(0, 16), (0, -1), (16, 0), (-1, 0)])
def test_port_and_command_beyond_four_bits_raise(command: int, port: int) -> None:
    with pytest.raises(LocalProtocolError):
        kiss.encode(b"", command, port)


def test_frame_of_another_port_is_distinguished() -> None:
    (frame,) = kiss.KissDeframer().receive_data(kiss.encode(b"x", kiss.DATA, 1))
    assert frame == (16, b"x")


@pytest.mark.parametrize("bad", [b"\xdb", b"\x00\xdb\x41b", b"\x00" + bytes(2000)])
def test_bad_frame_is_counted_and_the_next_is_read(bad: bytes) -> None:
    deframer = kiss.KissDeframer()
    assert list(deframer.receive_data(bad + kiss.encode(b"next"))) == [(0, b"next")]
    assert deframer.damaged == 1


@given(st.binary(min_size=1, max_size=100), st.integers(1, 3))
def test_stray_escape_before_the_end_loses_no_frame(content: bytes, strays: int) -> None:
    frame = kiss.encode(content)[:-1] + b"\xdb" * strays + b"\xc0"
    deframer = kiss.KissDeframer()
    assert list(deframer.receive_data(frame)) == [(0, content)]
    assert deframer.damaged == 0


@given(st.binary(max_size=400))
def test_frame_after_random_bytes_is_read(noise: bytes) -> None:
    deframer = kiss.KissDeframer()
    frames = list(deframer.receive_data(noise + kiss.encode(b"next")))
    assert frames[-1] == (0, b"next")


@pytest.mark.parametrize(
    ("answer", "waiting"),
    [(b"TXBUF:0", 0), (b"TXBUF:123", 123), (b"TXBUF:", None), (b"TNC:", None), (b"", None)],
)
def test_answer_to_the_buffer_query_is_read(answer: bytes, waiting: int | None) -> None:
    assert kiss.parse_waiting_bytes(answer) == waiting
