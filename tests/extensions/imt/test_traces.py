"""Traces of a 9704: the bytes that the recorder leaves out, and recorded faults that are replayed
to the real driver. `python -m tests.extensions.imt.test_traces` records the traces again.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.channels.flight_recorder import mask
from fieldagent.agent.channels.line_speed import LineSpeed
from fieldagent.extensions.imt import jspr, messages
from fieldagent.extensions.imt.agent import driver
from fieldagent.extensions.imt.agent.recognition import PROBE
from fieldagent.package.package import Status
from fieldagent.wire.trace import CAME, HAPPENED, SENT, TraceRecord
from tests.agent.channels.contract import Checked
from tests.agent.channels.test_traces import SECRET, write_traces
from tests.extensions.imt import test_driver
from tests.kit import RATES, Kit, kit, outcome, until
from tests.replay import Replay, kind_of, records_of

TRACES = Path(__file__).parent / "traces"


@pytest.fixture(params=RATES)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock:
    """Return a virtual clock with short real waits, because both ends of the pty run in this
    process.
    """
    return trio.testing.MockClock(request.param, autojump_threshold=0)


@pytest.mark.parametrize("name", sorted(each.name for each in TRACES.glob("*.log")))
def test_recorded_traces_contain_no_payload(name: str) -> None:
    trace_records = records_of(TRACES / name)
    assert mask(trace_records, kind_of(TRACES / name)) == trace_records
    assert any(each.direction == HAPPENED for each in trace_records)
    assert SECRET.encode() not in (TRACES / name).read_bytes()


def test_segment_data_of_a_9704_is_masked_in_a_trace() -> None:
    line = b'299 messageTerminateSegment {"topic_id":244,"data":"c2VjcmV0"}\r'
    trace_records = [TraceRecord(0.0, CAME, line[:55]), TraceRecord(0.0, CAME, line[55:])]
    shown = b"".join(each.data for each in mask(trace_records, "imt"))
    assert shown == line.replace(b"c2VjcmV0", b"AAAAAAAA")


@given(st.binary(min_size=1, max_size=4000), st.integers(1, 1446), st.booleans())
def test_masked_trace_of_a_9704_keeps_the_crc_right_or_wrong(
    body: bytes, size: int, right: bool
) -> None:
    guard = messages.compute_crc(body)
    whole = body + (guard if right else bytes([guard[0] ^ 1, guard[1]]))
    trace_records, key = [], {"topic_id": 244, "message_id": 3}
    for start in range(0, len(whole), size):
        piece = whole[start : start + size]
        text = json.dumps(
            {
                **key,
                "segment_length": len(piece),
                "segment_start": start,
                "data": base64.b64encode(piece).decode(),
            }
        )
        trace_records.append(
            TraceRecord(0.0, CAME, f"299 messageTerminateSegment {text}\r".encode())
        )
    end = json.dumps({**key, "final_mt_status": "complete"})
    trace_records.append(TraceRecord(0.0, CAME, f"299 messageTerminateStatus {end}\r".encode()))
    shown = mask(trace_records, "imt")
    assert [len(each.data) for each in shown] == [len(each.data) for each in trace_records]
    lines, assembly, message = jspr.LineReader(), messages.MtAssembly(), None
    lines.receive_data(b"".join(each.data for each in shown))
    while (line := lines.read_next_line()) is not None:
        event = messages.parse_event(line)
        if isinstance(event, messages.MtSegment):
            assembly.add(event)
        elif isinstance(event, messages.MtEnded):
            message = assembly.finish_message(event)
    assert message is not None
    assert not any(message.body[:-1])
    assert (message.damage == "") == right


@pytest.mark.parametrize("way", [SENT, CAME])
def test_rest_of_a_truncated_line_is_masked_in_a_trace(way: str) -> None:
    trace_records = [TraceRecord(0.0, way, b'c2VjcmV0"}\rPUT hwInfo {}\r')]
    assert mask(trace_records, "imt")[0].data == b"..........\rPUT hwInfo {}\r"


@asynccontextmanager
async def replayed_trace(name: str, path: Path) -> AsyncIterator[tuple[Replay, Kit]]:
    """Yield a trace of a 9704 that is played to its driver, and the kit."""
    replay = Replay(records_of(TRACES / name), path / "modem")
    async with kit(path) as k, trio.open_nursery() as nursery:
        await nursery.start(replay.run)

        async def drive() -> None:
            outbox, pace = Checked(k.outbox, in_flight=1), driver.ImtPace(random.Random(1))
            seat = str(replay.link), outbox, k.reception, k.outbox.link, pace
            await driver.run(*seat, speed=LineSpeed(230_400, PROBE))

        nursery.start_soon(drive)
        yield replay, k
        nursery.cancel_scope.cancel()


async def test_driver_resends_after_the_recorded_power_loss_of_a_9704(
    tmp_path: Path, clock: Any
) -> None:
    """The network had the message, and the modem lost power before its report. The message is sent
    again.
    """
    async with replayed_trace("reset.log", tmp_path) as (replay, k):
        id_ = await k.post(message={"content": SECRET})
        assert await outcome(k, id_) is Status.DELIVERED
        assert any("may have left" in str(line) for line in k.history(id_))
        assert replay.is_over
        assert replay.unknown == []


async def test_driver_keeps_the_recorded_garbled_mail_of_a_9704(tmp_path: Path, clock: Any) -> None:
    async with replayed_trace("garbled-mail.log", tmp_path) as (_, k):
        await until(lambda: k.journal.read("SELECT 1 FROM dead_letter"))
        ((reason, body),) = k.journal.read("SELECT reason, body FROM dead_letter")
        assert reason == "its CRC is wrong"
        assert not any(body[:-1]), "and has no payload"


async def _recorded(path: Path, sky: test_driver.Sky, work: Any) -> str:
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with test_driver.agent(sky) as k:
            k.outbox.link.recorder.ring = path / "trace.log"
            await work(k)
            text = k.outbox.link.recorder.format_trace()
        nursery.cancel_scope.cancel()
    return text


async def record_reset(path: Path) -> str:
    sky = test_driver.Sky(path)
    sky.faults.reset_at = "told"

    async def work(k: Kit) -> None:
        id_ = await k.post(message={"content": SECRET})
        assert await outcome(k, id_) is Status.DELIVERED

    return await _recorded(path, sky, work)


async def record_garbled(path: Path) -> str:
    sky = test_driver.Sky(path)

    async def work(k: Kit) -> None:
        await until(lambda: k.outbox.link.state is LinkState.READY)
        sky.faults.wrong_crcs = 1
        sky.bring(SECRET)
        await until(lambda: k.journal.read("SELECT 1 FROM dead_letter"))

    return await _recorded(path, sky, work)


if __name__ == "__main__":
    write_traces(TRACES, {"reset.log": record_reset, "garbled-mail.log": record_garbled})
