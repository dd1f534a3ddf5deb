"""The times of requests for missing fragments, and their channels."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.outbound.repeats import FRAGMENT_CHECK_INTERVAL_S, run_fragment_requests
from fieldagent.package.package import Channel, Message
from fieldagent.wire.envelope import Entry, Report, decode, encode
from fieldagent.wire.fragments import ASK_UNTIL_S, split
from fieldagent.wire.outcome import Outcome
from tests.kit import START, Kit, kit

SATELLITE, CELLULAR = Channel.SATELLITE, Channel.CELLULAR


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0)


def minutes() -> int:
    return round(trio.current_time() / 60)


def now() -> float:
    return START + trio.current_time()


PARTS = split(encode([Entry(9, Message("x" * 300), int(START))]), 120)


async def receive_fragment(k: Kit, index: int) -> None:
    await k.reception.receive(encode([Entry(9, PARTS[index])]))


async def list_requests(k: Kit, channel: Channel, days: float) -> list[tuple[int, Any]]:
    """Return the minutes of the requests, and the fragments that they list as present."""
    questions = []
    with trio.move_on_after(days * 86_400):
        while True:
            await k.outboxes[channel].wait_until_ready()
            transmission = k.outboxes[channel].load(340)
            assert transmission is not None
            (entry,) = decode(transmission.body).entries
            assert isinstance(entry.content, Report)
            questions.append((minutes(), entry.content.arrived))
            await k.outboxes[channel].settle(transmission, Outcome.SENT)
    return questions


@pytest.mark.full
async def test_missing_fragments_are_requested_less_often_and_then_no_more(
    tmp_path: Path, clock: Any
) -> None:
    async with kit(tmp_path) as k:
        k.nursery.start_soon(partial(run_fragment_requests, k.journal, k.outboxes, clock=now))
        await receive_fragment(k, 1)
        questions = await list_requests(k, SATELLITE, 20)
        assert [at for at, _ in questions] == [10, 40, 160, 640, 2560]
        assert {arrived for _, arrived in questions} == {frozenset([1])}


async def test_further_fragment_restarts_request_intervals(tmp_path: Path, clock: Any) -> None:
    async with kit(tmp_path) as k:
        k.nursery.start_soon(partial(run_fragment_requests, k.journal, k.outboxes, clock=now))
        await receive_fragment(k, 1)
        await trio.sleep(3600)
        await receive_fragment(k, 2)
        questions = await list_requests(k, SATELLITE, 0.4)
        # The request before the arrival of the second fragment left only now, with both.
        assert [at for at, _ in questions] == [60, 70, 100, 220]
        assert questions[-1][1] == {1, 2}


@pytest.mark.full
@pytest.mark.parametrize("jump", [-30 * 86_400.0, 30 * 86_400.0])
async def test_clock_change_does_not_change_request_intervals(
    tmp_path: Path, clock: Any, jump: float
) -> None:
    set_by = 0.0
    async with kit(tmp_path) as k:
        asking = partial(run_fragment_requests, k.journal, k.outboxes, clock=lambda: now() + set_by)
        k.nursery.start_soon(asking)
        await trio.sleep(FRAGMENT_CHECK_INTERVAL_S * 4)
        await receive_fragment(k, 1)
        await trio.sleep(FRAGMENT_CHECK_INTERVAL_S * 2)
        set_by = jump
        questions = await list_requests(k, SATELLITE, 5)
        assert [at for at, _ in questions] == [20, 50, 170, 650, 2570]


@pytest.mark.full
async def test_expired_item_is_not_requested_after_restart(tmp_path: Path, clock: Any) -> None:
    async with kit(tmp_path) as k:
        await receive_fragment(k, 1)
    await trio.sleep(ASK_UNTIL_S)
    async with kit(tmp_path) as k:
        k.nursery.start_soon(partial(run_fragment_requests, k.journal, k.outboxes, clock=now))
        assert await list_requests(k, SATELLITE, 5) == []


@pytest.mark.full
async def test_fragments_of_complete_item_are_not_requested(tmp_path: Path, clock: Any) -> None:
    async with kit(tmp_path) as k:
        k.nursery.start_soon(partial(run_fragment_requests, k.journal, k.outboxes, clock=now))
        for index in range(len(PARTS)):
            await receive_fragment(k, index)
        assert await list_requests(k, SATELLITE, 5) == []


async def test_fragments_are_requested_over_cheapest_ready_channel(
    tmp_path: Path, clock: Any
) -> None:
    async with kit(tmp_path, also=[CELLULAR]) as k:
        k.nursery.start_soon(partial(run_fragment_requests, k.journal, k.outboxes, clock=now))
        await receive_fragment(k, 1)
        k.outboxes[CELLULAR].link.state = LinkState.READY
        assert len(await list_requests(k, CELLULAR, 0.01)) == 1
        k.outboxes[CELLULAR].link.state = LinkState.NO_SERVICE
        k.outboxes[SATELLITE].link.state = LinkState.READY
        assert len(await list_requests(k, SATELLITE, 0.05)) == 1
