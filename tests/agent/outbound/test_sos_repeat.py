"""An SOS from its declaration until somebody confirms it or its sender calls it off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing

from fieldagent.agent.journal import sos
from fieldagent.agent.outbound.sos_repeat import LOOK_EVERY, keep_going
from fieldagent.package.package import Channel, Message, Status
from fieldagent.wire.envelope import Entry, Receipt, encode
from fieldagent.wire.outcome import Outcome
from tests.kit import START, Kit, kit

REPEAT = 600.0


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """Nothing here waits for a pty, and the journal holds the clock while its thread works."""
    return trio.testing.MockClock(autojump_threshold=0)


@asynccontextmanager
async def in_distress(path: Path, repeat: float = REPEAT) -> AsyncIterator[Kit]:
    async with kit(path, also=[Channel.CELLULAR]) as k:
        going = partial(keep_going, every=repeat, clock=lambda: START + trio.current_time())
        k.nursery.start_soon(going, k.journal, k.queues)
        yield k


def receipt(sequence: int) -> bytes:
    now = int(START + trio.current_time())
    return encode([Entry(sequence, Receipt(), now)])


async def sent_at(k: Kit) -> float:
    await k.outbox.ready()
    (entry,) = await k.send()
    assert (entry.content, entry.sos) == (Message("help"), True)
    return trio.current_time()


async def test_it_goes_again_and_again_until_it_is_confirmed(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        id_ = await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        times = [await sent_at(k) for _ in range(4)]
        assert k.status(id_) is Status.DELIVERED
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert all(REPEAT <= gap <= REPEAT + 2 * LOOK_EVERY for gap in gaps)
        await k.reception.receive(receipt(k.sequence()))
        with trio.move_on_after(3 * REPEAT) as waited:
            await k.outbox.ready()
        assert waited.cancelled_caught
        assert sos.state(k.journal, k.sequence()) == "confirmed"


async def test_one_that_waits_to_go_again_is_withdrawn_when_it_is_confirmed(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        await sent_at(k)
        await k.outbox.ready()
        await k.reception.receive(receipt(k.sequence()))
        await trio.sleep(2 * LOOK_EVERY)
        assert len(k.outbox) == 0


async def test_a_restart_does_not_end_it(tmp_path: Path, clock: trio.testing.MockClock) -> None:
    async with in_distress(tmp_path) as k:
        await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        await sent_at(k)
    async with in_distress(tmp_path) as k:
        await sent_at(k)


@pytest.mark.parametrize("jump", [-7 * 86_400.0, 7 * 86_400.0])
async def test_a_clock_that_is_set_does_not_stop_it(
    tmp_path: Path, clock: trio.testing.MockClock, jump: float
) -> None:
    set_by = 0.0
    async with kit(tmp_path) as k:
        going = partial(
            keep_going, every=REPEAT, clock=lambda: START + trio.current_time() + set_by
        )
        k.nursery.start_soon(going, k.journal, k.queues)
        await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        first = await sent_at(k)
        await trio.sleep(REPEAT / 2)
        set_by = jump
        assert REPEAT <= await sent_at(k) - first <= REPEAT + 2 * LOOK_EVERY


@pytest.mark.parametrize("priority", [11, 99])
async def test_nothing_else_goes_again(
    tmp_path: Path, clock: trio.testing.MockClock, priority: int
) -> None:
    async with in_distress(tmp_path) as k:
        await k.post(message={"content": "help"}, priority=priority)
        await k.send()
        await trio.sleep(3 * REPEAT)
        assert len(k.outbox) == 0


async def test_called_off_it_is_withdrawn_and_not_repeated(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        await k.post(message={"content": "help"}, priority=100)
        await k.send(channel=Channel.CELLULAR)
        (standing,) = await k.cancellation.call_off()
        assert standing.legs[Channel.CELLULAR].status is Status.DELIVERED
        assert standing.legs[Channel.SATELLITE].status is Status.CANCELED
        assert k.declared() == []
        await trio.sleep(3 * REPEAT)
        assert [len(outbox) for outbox in k.outboxes.values()] == [0, 0]


async def test_what_is_on_its_way_when_it_is_called_off_is_not_tried_again(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        id_ = await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        in_session = k.load()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(k.cancellation.call_off)
            await trio.sleep(1)
            await k.outbox.settle(in_session, Outcome.NOT_SENT, reason="no service")
        assert k.status(id_) is Status.CANCELED
        assert len(k.outbox) == 0


async def test_the_story_tells_it_in_order_and_counts_what_repeats(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        id_ = await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        for _ in range(3):
            await trio.sleep(10)
            await k.send(Outcome.NOT_SENT, reason="no service")
        await trio.sleep(10)
        await k.send()
        await trio.sleep(10)
        await k.reception.receive(receipt(k.sequence()))
        story = k.history(id_)
        assert [(line.event, line.detail, line.times) for line in story] == [
            ("accepted", "", 1),
            ("not sent", "no service", 3),
            ("sent", "21 bytes, 1 credit", 1),
            ("Delivered", "", 1),
            ("answered", "Delivered", 1),
            ("confirmed", "taken by a webhook of the hub", 1),
        ]


async def test_a_late_word_is_told_beside_the_answer(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with kit(tmp_path) as k:
        id_ = await k.post(timeToLive=60)
        await trio.sleep(120)
        assert (k.status(id_), k.reason(id_)) == (Status.ERROR, "expired")
        await k.reception.receive(receipt(k.sequence()))
        standing = k.standing(id_)
        assert standing.status is Status.ERROR
        assert [storage.by.id for storage in k.receipts(id_)] == ["0"]
