"""A recorded radio trace of one kit, replayed to another kit as a TNC.

Real agents with KISS TNCs and a group's key: the second kit reports the same as the first one.
"""

from __future__ import annotations

import os
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fieldagent.wire import kiss, trace
from fieldagent.wire.trace import CAME, TraceRecord
from tests.processes import Agent, agent, until

pytestmark = pytest.mark.full

KEY = bytes(range(32)).hex()
TEXT = "the well is at the third pine"


@contextmanager
def line(link: Path) -> Iterator[int]:
    """Yield a TNC's end of a serial line with this name."""
    ours, theirs = os.openpty()
    try:
        tty.setraw(theirs)
        link.symlink_to(os.ttyname(theirs))
        yield ours
    finally:
        link.unlink()
        os.close(ours)
        os.close(theirs)


@contextmanager
def forward_frames(ear: int, mouth: int) -> Iterator[None]:
    """Pass the frames of one TNC's host to the other TNC."""
    over = threading.Event()

    def run() -> None:
        deframer = kiss.KissDeframer()
        with suppress(OSError):
            while not over.is_set():
                for command, content in deframer.receive_data(os.read(ear, 4096)):
                    if command == kiss.DATA:
                        os.write(mouth, kiss.encode(content))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def kit_settings(tnc: Path, station: int) -> dict[str, str | None]:
    return {
        "satellite-port": None,
        "radio-port": str(tnc),
        "radio-protocol": "kiss",
        "radio-callsign": f"N0CALL-{station}",
        "radio-station": str(station),
        "radio-name": f"Kit {station}",
        "radio-key": KEY,
        "inbound-hook": "cat",
    }


@contextmanager
def kit(home: Path, tnc: Path, station: int) -> Iterator[Agent]:
    home.mkdir()
    with agent(home, kit_settings(tnc, station)) as running:
        yield running


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the trace, with payloads, of a kit 2 that heard kit 1."""
    home = tmp_path_factory.mktemp("recorded")
    first, second = home / "tnc-1", home / "tnc-2"
    with (
        line(first) as one,
        line(second) as two,
        forward_frames(one, two),
        forward_frames(two, one),
        kit(home / "1", first, 1) as speaks,
        kit(home / "2", second, 2) as hears,
    ):
        assert speaks.post(TEXT).body["status"] == "Delivered"
        hears.expect(TEXT)
        asked = "/api/trace?channel=Radio&payloads=1"
        return str(hears.call("GET", asked).body["memory"])


def play(records: list[TraceRecord], mouth: int) -> None:
    """Send the TNC's data at once and without a request. A kit obeys it in any case."""
    for each in records:
        if each.direction == CAME:
            os.write(mouth, each.data)


def facts(running: Agent) -> dict[str, Any]:
    """Return a kit's report about its radio."""
    return dict(running.call("GET", "/api/status").body["channels"]["Radio"])


def heard(running: Agent) -> list[Any]:
    payloads = running.call("GET", "/api/inbound").body["payloads"]
    return [each["body"]["payloads"][0]["events"][0].get("content") for each in payloads]


def test_replayed_trace_delivers_recorded_message_once(tmp_path: Path, recorded: str) -> None:
    """Each message comes once, even after several replays, and none comes if one byte of each frame
    is changed.
    """
    records = trace.parse_trace(recorded)
    damaged = [_damaged(each) if each.direction == CAME else each for each in records]
    tnc = tmp_path / "tnc"
    with line(tnc) as mouth, kit(tmp_path / "3", tnc, 2) as third:
        play(damaged, mouth)
        until(lambda: "wrongKeyPackets" in facts(third))
        assert heard(third) == []
        for _ in range(2):
            play(records, mouth)
        third.expect(TEXT)
        assert heard(third) == [TEXT]


def _damaged(record: TraceRecord) -> TraceRecord:
    """Change a byte near the end, where a frame has its tag."""
    data = bytearray(record.data)
    data[-4:-3] = bytes([data[-4] ^ 1]) if len(data) > 20 else data[-4:-3]
    return record._replace(data=bytes(data))


def test_masked_radio_trace_names_payloads_option(tmp_path: Path, recorded: str) -> None:
    masked = trace.mask(trace.parse_trace(recorded), trace.RADIO)
    shown = trace.format_head(trace.RADIO, is_masked=True) + trace.format_trace(masked)
    assert "--payloads" in shown
    assert TEXT[4:] not in shown
