"""Traces: the data that the recorder keeps and leaves out, and recorded faults that are replayed to
the real driver. They need no simulated modem.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.agent.channels import flight_recorder, satellite
from fieldagent.agent.channels.flight_recorder import FlightRecorder
from fieldagent.agent.channels.line_speed import LineSpeed
from fieldagent.agent.journal import inbound
from fieldagent.agent.satellites.sbd import SBD
from fieldagent.package.package import Status
from fieldagent.wire import trace
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.trace import CAME, HAPPENED, SENT, TraceRecord
from tests import autojump
from tests.agent.channels.contract import Checked
from tests.kit import RATES, Kit, kit, outcome, until
from tests.replay import Replay, kind_of, records_of

TRACES = Path(__file__).parent / "traces"
SECRET = "the well is at the third pine"


@pytest.fixture(params=RATES)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock:
    """Both ends of the pty run in this process, so real waits are short."""
    return trio.testing.MockClock(request.param, autojump_threshold=0)


Record: TypeAlias = "Callable[[Path], Awaitable[str]]"
"""Records one trace with a journal in the folder, and returns its text."""
records = st.lists(
    st.builds(
        TraceRecord,
        st.integers(0, 10**9).map(lambda number: number / 1000),
        st.sampled_from([SENT, CAME]),
        st.binary(),
    )
)


@given(records)
def test_trace_round_trips_any_bytes(trace_records: list[TraceRecord]) -> None:
    assert trace.parse_trace(trace.format_trace(trace_records)) == trace_records


@given(st.text())
def test_invalid_trace_is_reported_with_line_number(text: str) -> None:
    try:
        trace.parse_trace(text)
    except RemoteProtocolError as error:
        assert str(error).startswith("line ")


@given(st.binary(min_size=1, max_size=270), st.integers(1, 7), st.booleans())
def test_mask_removes_payload_of_satellite_message(body: bytes, segment: int, right: bool) -> None:
    """This holds for each division of the bytes. The length of the message and the correctness of
    its checksum stay visible.
    """
    guard = (sum(body) + (not right) & 0xFFFF).to_bytes(2)
    answer = b"\r\n" + len(body).to_bytes(2) + body + guard + b"\r\nOK\r\n"
    segments = [answer[i : i + segment] for i in range(0, len(answer), segment)]
    trace_records = [
        TraceRecord(0.0, SENT, b"AT+SBDWB=%d\r" % len(body)),
        TraceRecord(0.0, CAME, b"READY\r\n"),
        TraceRecord(0.0, SENT, body + guard),
        TraceRecord(0.0, CAME, b"0\r\n\r\nOK\r\n"),
        TraceRecord(1.0, SENT, b"AT+SBDRB\r"),
        *(TraceRecord(1.0, CAME, each) for each in segments),
    ]
    if body.startswith(b"AT"):
        return
    shown = trace.mask(trace_records, "sbd")
    assert [len(each.data) for each in shown] == [len(each.data) for each in trace_records]
    zeros = bytes(len(body)) + (b"\0\0" if right else b"\x55\0")
    assert shown[2].data == zeros
    read = b"".join(each.data for each in shown[5:])
    assert read == answer[:4] + zeros + b"\r\nOK\r\n"


def test_mask_reduces_radio_frame_to_length() -> None:
    (shown,) = trace.mask([TraceRecord(0.0, CAME, b"\xc0\x00secret words\xc0")], "node")
    assert shown.data == b"\xc0\x00s...15 bytes"


async def test_recorder_memory_and_ring_file_are_bounded(tmp_path: Path) -> None:
    ring = tmp_path / "trace.log"
    recorder = FlightRecorder(ring)
    recorder.kind = "sbd"

    await recorder.record_fault("the first")
    begun = ring.stat().st_ino
    await recorder.record_fault("at once after it")
    assert ring.stat().st_ino == begun, "no write follows another at once"
    for _ in range(9000):
        recorder.record_sent(b"AT+SBDSX\r")
        recorder.record_received(b"x" * 90)
    assert len(recorder.format_trace(payloads=True)) < 3 * flight_recorder.MEMORY_BYTES
    for number in range(20):
        flight_recorder._append(ring, f"{number:.3f} < {'y' * 30_000}\n", "sbd")
    assert ring.stat().st_size <= flight_recorder.RING_BYTES
    assert trace.parse_trace(ring.read_text("ascii"))[-1].at == 19.0


async def test_recorder_appends_to_damaged_ring_file(tmp_path: Path) -> None:
    ring = tmp_path / "trace.log"
    ring.write_bytes(b"# fieldagent trace 1\n0.1 > A\xff\n")
    recorder = FlightRecorder(ring)
    recorder.record_sent(b"AT")
    await recorder.record_fault("it went away")
    assert "it went away" in await recorder.read_stored()


async def test_recorder_survives_unwritable_disk(tmp_path: Path) -> None:
    recorder = FlightRecorder(tmp_path / "no folder" / "trace.log")
    await recorder.record_fault("a fault")
    assert await recorder.read_stored() == ""


@asynccontextmanager
async def replayed(name: str, path: Path, **how: Any) -> AsyncIterator[tuple[Replay, Kit]]:
    """Yield a kit with the real driver and a replayed trace."""
    replay = Replay(records_of(TRACES / name), path / "modem")
    async with kit(path, **how) as k, trio.open_nursery() as nursery:
        await nursery.start(replay.run)

        async def drive() -> None:
            outbox, pace = Checked(k.outbox, in_flight=1), satellite.Pace(random.Random(1))
            seat = str(replay.link), outbox, k.reception, k.outbox.link, pace
            await satellite.run(*seat, speed=LineSpeed(19_200, SBD))

        nursery.start_soon(drive)
        yield replay, k
        nursery.cancel_scope.cancel()


async def test_message_is_delivered_after_recorded_reset_in_session(
    tmp_path: Path, clock: Any
) -> None:
    """The modem lost power while it sent, and reported no result. The message is repeated, and is
    delivered when the modem reports success.
    """
    async with replayed("reset-in-session.log", tmp_path) as (replay, k):
        id_ = await k.post(message={"content": SECRET})
        assert await outcome(k, id_) is Status.DELIVERED
        events = [line.event for line in k.history(id_)]
        assert events == ["accepted", "sent", "Delivered", "answered"]
        assert replay.is_over, "both sessions were replayed: the one without an end, and the next"
        assert replay.unknown == []


async def test_recorded_garbled_mail_becomes_dead_letter(tmp_path: Path, clock: Any) -> None:
    """The message is read until its checksum is correct. The trace has no payload, so the result is
    not one of our messages, and it is kept.
    """
    async with replayed("garbled-mail.log", tmp_path) as (_, k):
        await until(lambda: k.journal.read("SELECT 1 FROM dead_letter"))
        (row,) = k.journal.read("SELECT reason, body FROM dead_letter")
        assert row[0].startswith("it cannot be read"), "the last reading was right"
        assert not any(row[1]), "and has no payload"
        assert inbound.list_payloads(k.journal, 9) == []


@pytest.mark.parametrize("name", sorted(each.name for each in TRACES.glob("*.log")))
def test_traces_in_repository_contain_no_payload(name: str) -> None:
    trace_records = records_of(TRACES / name)
    assert trace.mask(trace_records, kind_of(TRACES / name)) == trace_records
    assert any(each.direction == HAPPENED for each in trace_records)
    assert SECRET.encode() not in (TRACES / name).read_bytes()


def write_traces(folder_of_traces: Path, records: Mapping[str, Record]) -> None:
    """Write the traces of the tree, each by its name."""
    autojump.install()
    for name, record in records.items():
        with tempfile.TemporaryDirectory() as folder:
            clock = trio.testing.MockClock(autojump_threshold=0)
            text = trio.run(record, Path(folder), clock=clock)
        (folder_of_traces / name).write_text(text.replace(folder, "/dev"), "ascii")
        print(name, len(text), file=sys.stderr)
