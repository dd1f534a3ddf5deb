"""Traces of the IP link: recorded by the real driver with a real hub's end, without any message
text, and replayed to the driver as the hub. `python -m tests.agent.channels.test_link_traces`
records the trace in the tree again.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.agent.channels import cellular
from fieldagent.agent.channels.hub_connection import HubAddress
from fieldagent.package.package import Status
from fieldagent.wire import trace
from fieldagent.wire.link import IpLink, LinkHello
from fieldagent.wire.trace import CAME, SENT, TraceRecord
from tests import autojump
from tests.agent.channels.test_cellular import agent, mail, outcome, over, until
from tests.hub.memory_mailbox import TOKEN, MemoryHub
from tests.hub.serving import CA, wired
from tests.kit import RATES
from tests.replay import ReplayedLink, records_of

TRACE = Path(__file__).parent / "traces/link-cut.log"
SECRET = "the well is at the third pine"


@pytest.fixture(params=RATES)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock:
    """All ends run in this process, so real waits are short."""
    return trio.testing.MockClock(request.param, autojump_threshold=0)


@given(st.binary(min_size=1, max_size=70_000))
def test_mask_replaces_body_of_link_message_with_zeros(body: bytes) -> None:
    link = IpLink(LinkHello())
    hello = link.make_hello()
    link.receive(IpLink(LinkHello()).make_hello())
    _, message = link.send(body)
    records = [TraceRecord(0.0, SENT, hello), TraceRecord(0.0, SENT, message)]
    first, second = trace.mask(records, trace.LINK)
    assert first.data == hello
    assert second.data == message.removesuffix(body) + bytes(len(body))


@given(st.binary(max_size=60))
def test_mask_limits_length_of_unknown_link_data(data: bytes) -> None:
    (shown,) = trace.mask([TraceRecord(0.0, CAME, data)], trace.LINK)
    assert len(shown.data) <= max(len(data), 20)


def test_masked_radio_trace_explains_missing_replay() -> None:
    assert "sums and tags stand in what is left out" in trace.format_head(
        trace.RADIO, is_masked=True
    )
    for kind, masked in ((trace.RADIO, False), ("sbd", True), (trace.LINK, True)):
        assert trace.format_head(kind, is_masked=masked).count("\n") == 1
    assert trace.parse_trace(trace.format_head(trace.RADIO, is_masked=True)) == []


async def record_cut(path: Path) -> str:
    """Record a link that breaks after the hub has got a message but before its answer. One message
    comes down.
    """
    hub = MemoryHub()
    ca = path / "ca.pem"
    CA.cert_pem.write_to_path(str(ca))
    async with wired(hub) as wire, agent(path, over(wire, ca)) as k:
        cuts = 1

        async def cut() -> None:
            nonlocal cuts
            if cuts:
                cuts -= 1
                wire.cut()
                await trio.sleep(1)

        hub.mailbox.before_disk = cut
        recorder = k.outbox.link.recorder
        recorder.ring = path / "trace.log"
        assert await outcome(k, await k.post(message={"content": SECRET})) is Status.DELIVERED
        hub.mailbox.put(mail(5, SECRET))
        await until(lambda: hub.mailbox.delivered)
        kept = await recorder.read_stored()
        assert "closed by the hub: 1006" in kept, "a fault writes the trace to the disk"
        assert SECRET not in kept
        return recorder.format_trace()


async def test_recorded_link_trace_is_replayed_to_delivery(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file from the field contains the same: a link that broke, and the next one that settled the
    doubt.
    """
    await play(tmp_path, monkeypatch)


async def play(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = ReplayedLink(records_of(TRACE))

    async def open_nothing(server: object) -> trio.abc.Stream:
        ours, _ = trio.testing.memory_stream_pair()
        return ours

    async def open_replay(hub: object, stream: object) -> ReplayedLink:
        return replay.open()

    monkeypatch.setattr(cellular, "open_stream", open_nothing)
    monkeypatch.setattr(cellular, "open_web_socket", open_replay)
    async with agent(path, HubAddress("http://127.0.0.1:1", TOKEN)) as k:
        id_ = await k.post(message={"content": SECRET})
        assert await outcome(k, id_) is Status.DELIVERED
        assert k.outbox.link.recorder.format_trace().count("connected to") == 2
        await until(lambda: k.journal.read("SELECT 1 FROM dead_letter"))
        assert replay.is_over
        assert replay.unknown == []


async def test_new_recording_of_link_contains_reconnect_without_payload(
    tmp_path: Path, clock: Any
) -> None:
    text = await record_cut(tmp_path)
    assert SECRET.encode() not in text.encode()
    assert text.count("connected to") == 2


def main() -> None:
    """Write the trace of the tree."""
    autojump.install()
    with tempfile.TemporaryDirectory() as folder:
        text = trio.run(
            record_cut, Path(folder), clock=trio.testing.MockClock(autojump_threshold=0)
        )
    TRACE.write_text(text, "ascii")
    print(TRACE.name, len(text), file=sys.stderr)


if __name__ == "__main__":
    main()
