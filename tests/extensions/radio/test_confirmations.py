"""The end of a Package over the air: the agent is a real process, and the test is its radio.

A confirmed number may belong to another item: of a lost journal, or of a cloned kit that is on the
air as the same station.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from fieldagent.extensions.radio.radios.kiss import DESTINATION
from fieldagent.package.package import Message
from fieldagent.wire import ax25, kiss
from fieldagent.wire.envelope import Ack, Entry, compute_item_digest, decode, derive_key, encode
from tests.processes import Agent

MASTER = bytes(range(32))
AIR = derive_key(MASTER, "AIR")
KIT, BEN = 7, 8
"""Stations: the agent, and the one that the test plays."""


@dataclass
class Ether:
    """A KISS modem on TCP. It notes the agent's packets, and sends packets to it."""

    port: int = 0
    heard: list[bytes] = field(default_factory=list)
    _stream: trio.SocketStream | None = None

    async def serve(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        deframer = kiss.KissDeframer()
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await stream.receive_some(4096):
                for command, content in deframer.receive_data(bytes(data)):
                    frame = ax25.decode(content) if command == kiss.DATA else None
                    if frame is not None:
                        self.heard.append(frame.info)

    async def say(self, body: bytes) -> None:
        assert self._stream is not None
        call = ax25.parse_callsign
        frame = ax25.Frame(call("N0CALL-8"), DESTINATION, body)
        await self._stream.send_all(kiss.encode(ax25.encode(frame)))

    async def sos(self, after: int = 0) -> Entry:
        """Return the SOS in the agent's packets since `after`."""
        while True:
            for body in self.heard[after:]:
                for entry in decode(body, keys=[AIR]).entries:
                    if entry.sos:
                        return entry
            await trio.sleep(0.02)


@asynccontextmanager
async def ether() -> AsyncIterator[Ether]:
    played = Ether()
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, played.serve, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        played.port = listener.socket.getsockname()[1]
        yield played
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def kit(home: Path, air: Ether) -> AsyncIterator[Agent]:
    settings: dict[str, str | None] = {
        "satellite-port": None,
        "radio-port": f"tcp://127.0.0.1:{air.port}",
        "radio-protocol": "kiss",
        "radio-callsign": "N0CALL-7",
        "radio-station": str(KIT),
        "radio-key": MASTER.hex(),
    }
    await trio.Path(home).mkdir(exist_ok=True)
    running = await in_thread(Agent, home, settings)
    try:
        yield running
    finally:
        await in_thread(running.stop)


async def in_thread(what: Callable[..., Any], *arguments: Any) -> Any:
    return await trio.to_thread.run_sync(what, *arguments)


async def raise_sos(agent: Agent, content: str = "help") -> int:
    body = {"message": {"content": content}, "priority": 100}
    return int((await in_thread(agent.call, "POST", "/api/package/async", body)).body["id"])


async def read_package(agent: Agent, id_: int) -> dict[str, Any]:
    return dict((await in_thread(agent.call, "GET", f"/api/package/{id_}")).body)


async def sos_status(agent: Agent) -> dict[str, Any]:
    return dict((await in_thread(agent.call, "GET", "/api/status")).body["sos"])


async def count_refused_confirmations(agent: Agent) -> int:
    """Return the number of confirmations without effect, as people see it."""
    metrics = str((await in_thread(agent.call, "GET", "/metrics")).body)
    return int(metrics.split("fieldagent_confirmations_refused_total ")[1].split()[0])


def ack(entry: Entry, digest: bytes) -> bytes:
    return encode([Entry(entry.sequence, Ack(KIT, digest=digest))], origin=BEN, key=AIR)


async def wait_for_end(agent: Agent, id_: int) -> str:
    while (status := (await read_package(agent, id_))["status"]) not in ("Delivered", "Error"):
        await trio.sleep(0.05)
    return str(status)


@pytest.mark.full
async def test_replayed_ack_does_not_confirm_sos_of_new_journal(tmp_path: Path) -> None:
    home = tmp_path / "kit"
    with trio.fail_after(60):
        async with ether() as air:
            async with kit(home, air) as agent:
                first = await raise_sos(agent)
                entry = await air.sos()
                recording = ack(entry, compute_item_digest(entry))
                status = await sos_status(agent)
                assert [each["state"] for each in status["incident"]["steps"]] == ["raised"]
                await air.say(recording)
                assert await wait_for_end(agent, first) == "Delivered"
                status = await sos_status(agent)
                heard = [
                    each for each in status["incident"]["steps"] if each["state"] == "heard by"
                ]
                assert [each["by"] for each in heard] == [f"kit {BEN}"]
                assert status["active"] == 1, "a kit's Ack ends no SOS"
            shutil.rmtree(home)
            since = len(air.heard)
            async with kit(home, air) as agent:
                second = await raise_sos(agent, "nobody has this")
                fresh = await air.sos(since)
                assert fresh.sequence != entry.sequence, "the new journal reuses a number"
                await air.say(recording)
                await air.sos(len(air.heard))
                assert (await read_package(agent, second))["status"] not in ("Delivered", "Error")
                await air.say(ack(fresh, compute_item_digest(fresh)))
                assert await wait_for_end(agent, second) == "Delivered"


@pytest.mark.full
async def test_ack_of_other_item_with_same_number_is_refused(tmp_path: Path) -> None:
    """A cloned kit has the same station and the same journal, but another SOS."""
    home = tmp_path / "kit"
    with trio.fail_after(60):
        async with ether() as air, kit(home, air) as agent:
            id_ = await raise_sos(agent)
            entry = await air.sos()
            clones = Entry(entry.sequence, Message("of the clone"), entry.time, sos=True)
            await air.say(ack(entry, compute_item_digest(clones)))
            await in_thread(agent.expect, "is not for the Package that has this number now")
            assert await count_refused_confirmations(agent) == 1
            await air.sos(len(air.heard))
            assert (await read_package(agent, id_))["status"] not in ("Delivered", "Error")
            await air.say(ack(entry, compute_item_digest(entry)))
            assert await wait_for_end(agent, id_) == "Delivered"


async def test_replayed_sos_reaches_hook_once_after_many_items(
    tmp_path: Path,
) -> None:
    """More items arrived since than the number of ordinary items that the kit remembers."""
    home = tmp_path / "kit"
    recording = encode([Entry(5, Message("help"), 1_785_000_000, sos=True)], origin=BEN, key=AIR)
    with trio.fail_after(90):
        async with ether() as air:
            async with kit(home, air) as agent:
                await raise_sos(agent)
                await air.sos()
                await air.say(recording)
                await in_thread(agent.expect, "an SOS has come from")
            with sqlite3.connect(home / "state" / "journal.sqlite3") as journal:
                journal.execute("UPDATE arrived SET at = at - 60 * 86400")
                journal.execute(
                    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
                    " WHERE i < 60000) INSERT INTO arrived (origin, sequence, digest, at)"
                    " SELECT -9, i, x'00', 1e9 + i FROM n"
                )
            journal.close()
            async with kit(home, air) as agent:
                since = len(air.heard)
                await air.sos(since)
                await air.say(recording)
                await in_thread(agent.expect, "payloads were duplicates and were not passed on")
                inbound = (await in_thread(agent.call, "GET", "/api/inbound")).body
                assert len(inbound["payloads"]) == 1
