"""The connection to a TAK server, with a server of each kind at its other end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
from trio.testing import memory_stream_pair

from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.bridge.link import StreamSession
from fieldagent.extensions.tak.cot import EventSplitter, decode, encode, find_type
from fieldagent.hub.bridge.connecting import ConnectionLost

UID = "FA-1-7"
NOW = datetime(2026, 11, 30, tzinfo=UTC)
MARKER = encode(tak.make_ping("FA-1-8", NOW)).replace(b"t-x-c-t", b"a-f-G-U-C")

Answer = Callable[[bytes], list[bytes]]


def echo(raw: bytes) -> list[bytes]:
    """Return everything, pings too, as OpenTAKServer does."""
    return [raw]


def pong(raw: bytes) -> list[bytes]:
    return [encode(tak.make_pong(NOW))] if find_type(raw) == tak.PING else []


def marker(_: bytes) -> list[bytes]:
    return [MARKER]


async def serve(end: trio.abc.Stream, answer: Answer, heard: list[str]) -> None:
    splitter = EventSplitter()
    while data := await end.receive_some(65_536):
        for raw in splitter.receive_data(bytes(data)):
            heard.append(find_type(raw))
            for each in answer(raw):
                await end.send_all(each)


async def at_server(answer: Answer, use: Callable[[StreamSession], Awaitable[None]]) -> list[str]:
    """Return the types of the events that a server receives while a session is in use."""
    here, there = memory_stream_pair()
    heard: list[str] = []
    session = StreamSession(here, UID)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, there, answer, heard)
        nursery.start_soon(session.run, lambda kind, raw: None)
        await use(session)
        nursery.cancel_scope.cancel()
    return heard


@pytest.mark.parametrize("answer", [echo, pong])
async def test_event_is_accepted_once_its_ping_is_answered_or_echoed(
    answer: Answer, clock: Any
) -> None:
    async def use(session: StreamSession) -> None:
        await session.send_events([decode(MARKER)])
        await trio.sleep(120)

    heard = await at_server(answer, use)
    assert set(heard) == {"a-f-G-U-C", tak.PING}, "a pong to an echo would go to all phones"


async def test_server_without_ping_answers_is_lost(clock: Any) -> None:
    async def use(session: StreamSession) -> None:
        await trio.sleep(300)

    with pytest.raises(ExceptionGroup) as lost:
        await at_server(marker, use)
    assert lost.group_contains(ConnectionLost, match="has not answered a ping within 20 s")
