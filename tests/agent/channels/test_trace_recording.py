"""The recording of traces: the real driver and recorder, and a simulated modem.
`python -m tests.agent.channels.test_trace_recording` records the traces in the tree again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.journal import inbound
from fieldagent.package.package import Message, Status
from fieldagent.wire import trace
from fieldagent.wire.trace import CAME, HAPPENED, SENT
from tests.agent.channels.test_satellite import Sky, agent
from tests.agent.channels.test_traces import SECRET, TRACES, write_traces
from tests.kit import RATES, Kit, outcome, until


@pytest.fixture(params=RATES)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock:
    """Both ends of the pty run in this process, so real waits are short."""
    return trio.testing.MockClock(request.param, autojump_threshold=0)


async def test_recorder_writes_trace_of_fault_without_payload(tmp_path: Path, clock: Any) -> None:
    """The real driver records the fault, from its serial line to the file that people copy."""
    text = await record_reset(tmp_path)
    hub_routes = [each.direction for each in trace.parse_trace(text)]
    assert {SENT, CAME, HAPPENED} <= set(hub_routes)
    assert "unknown whether it was sent" in text or "ModemSilent" in text
    assert SECRET not in text


async def _recorded(path: Path, sky: Sky, work: Any) -> str:
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with agent(sky) as k:
            k.outbox.link.recorder.ring = path / "trace.log"
            await work(k)
            await k.outbox.link.recorder.record_fault("recorded")
            text = k.outbox.link.recorder.format_trace()
        nursery.cancel_scope.cancel()
    return text


async def record_reset(path: Path) -> str:
    sky = Sky(path)

    async def work(k: Kit) -> None:
        id_ = await k.post(message={"content": SECRET})
        await until(lambda: sky.modem.session)
        sky.modem.start_brown_out()
        assert await outcome(k, id_) is Status.DELIVERED

    return await _recorded(path, sky, work)


async def record_garbled(path: Path) -> str:
    sky = Sky(path)

    async def work(k: Kit) -> None:
        await until(lambda: k.outbox.link.state is LinkState.READY)
        sky.home.send(Message(SECRET))
        sky.modem.faults.wrong_sums = 3
        sky.modem.ring()
        sky.port.poke()
        await until(lambda: inbound.list_payloads(k.journal, 9))

    return await _recorded(path, sky, work)


if __name__ == "__main__":
    write_traces(TRACES, {"reset-in-session.log": record_reset, "garbled-mail.log": record_garbled})
