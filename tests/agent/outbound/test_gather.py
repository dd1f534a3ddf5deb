"""Positions that wait for others: one satellite message for several positions, the newest first,
and no loss.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio

from fieldagent.package.package import Channel, Location, Message, Status
from fieldagent.wire.envelope import decode
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sbd import MO_BYTES
from tests.kit import Kit, kit

NOON = datetime(2026, 9, 21, 12, tzinfo=UTC)
GATHER = 2400
EVERY = 300
"""Seconds between two positions."""


def fix(number: int) -> dict[str, Any]:
    """Return a position of a person who walks north-east, as `fieldagent track --batch`
    posts it.
    """
    return {
        "location": {
            "latitude": round(47.3 + number * 0.00321 + number % 3 * 0.0004, 5),
            "longitude": round(8.5 + number * 0.0029, 5),
            "timestamp": (NOON + timedelta(seconds=EVERY * number)).isoformat(),
        },
        "gather": GATHER,
        "timeToLive": 86_400,
    }


async def walk(k: Kit, numbers: range) -> list[int]:
    ids = []
    for number in numbers:
        ids.append(await k.post(**fix(number)))
        await trio.sleep(EVERY)
    return ids


def moments(body: bytes) -> list[datetime]:
    contents = [entry.content for entry in decode(body).entries]
    return [each.timestamp for each in contents if isinstance(each, Location) and each.timestamp]


def moments_of(numbers: range) -> list[datetime]:
    return [NOON + timedelta(seconds=EVERY * number) for number in numbers]


async def test_gathered_positions_share_one_credit(tmp_path: Path, clock: Any) -> None:
    async with kit(tmp_path) as k:
        began = trio.current_time()
        ids: list[int] = []

        async def move() -> None:
            ids.extend(await walk(k, range(8)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(move)
            await k.outbox.wait_until_ready()
            assert trio.current_time() - began >= GATHER
        transmission = k.load()
        assert moments(transmission.body) == moments_of(range(8))
        assert len(transmission.body) <= 50
        await k.outbox.record_intent(transmission, modem="300", at_modem=1)
        assert [k.status(each) for each in ids] == [None] * 8
        await k.outbox.settle(transmission, Outcome.SENT)
        assert {k.status(each) for each in ids} == {Status.DELIVERED}
        assert k.outbox.budget.get_spent().credits == 1


async def test_gathering_positions_are_sent_with_next_message(tmp_path: Path, clock: Any) -> None:
    async with kit(tmp_path) as k:
        await walk(k, range(3))
        assert k.outbox.load(MO_BYTES) is None
        await k.post(message={"content": "Bridge is out"}, priority=9)
        transmission = k.load()
        assert moments(transmission.body) == moments_of(range(3))
        assert Message("Bridge is out") in [e.content for e in decode(transmission.body).entries]


async def test_newest_positions_are_sent_before_older_positions(tmp_path: Path, clock: Any) -> None:
    """After some hours without service, there are more positions than fit into one message."""
    async with kit(tmp_path) as k:
        for number in range(150):
            await k.post(**fix(number))
        await trio.sleep(GATHER)
        seen = []
        while len(k.outbox):
            transmission = k.load(MO_BYTES)
            seen.append(moments(transmission.body))
            await k.outbox.record_intent(transmission, modem="300", at_modem=len(seen))
            await k.outbox.settle(transmission, Outcome.SENT)
        assert seen[0][-1] == moments_of(range(150))[-1]
        assert len(seen[0]) >= 60
        assert [moment for each in reversed(seen) for moment in each] == moments_of(range(150))


async def test_gathering_positions_survive_power_cut(tmp_path: Path, clock: Any) -> None:
    async with kit(tmp_path) as k:
        await walk(k, range(4))
    async with kit(tmp_path) as k:
        assert k.outbox.load(MO_BYTES) is None
        before = trio.current_time()
        await k.outbox.wait_until_ready()
        assert trio.current_time() - before <= GATHER
        assert moments(k.load().body) == moments_of(range(4))


@pytest.mark.parametrize(("channel", "priority"), [("Cellular", 10), ("Satellite", 100)])
async def test_position_is_not_gathered_as_sos_or_on_free_channel(
    tmp_path: Path, channel: str, priority: int
) -> None:
    async with kit(tmp_path, Channel(channel)) as k:
        await k.post(**fix(0), priority=priority)
        assert moments(k.load().body) == moments_of(range(1))
