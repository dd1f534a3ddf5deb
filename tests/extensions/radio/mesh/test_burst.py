"""Fragments on the air, with several of a Package in transit at once. The test plays the
stations.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldagent.agent.channels.contract import Transmission
from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.records import EndedDelivery
from fieldagent.extensions.radio.mesh.reception import apply_ack
from fieldagent.package.package import Channel, Status
from fieldagent.wire.envelope import Ack, Fragment, decode
from fieldagent.wire.outcome import Outcome
from tests.kit import Kit, kit

RADIO = Channel.RADIO
SENT, NOT_SENT = Outcome.SENT, Outcome.NOT_SENT


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0)


@dataclass
class Sky:
    """Stations that report their fragments of Package 1, which is cut into `count`."""

    k: Kit
    count: int = 0
    has: dict[int, set[int]] = field(default_factory=dict)

    def load(self) -> tuple[Transmission, Any]:
        """Return the next transmission and its content."""
        transmission = self.k.load(200)
        (entry, *_) = decode(transmission.body).entries
        return transmission, entry.content

    def burst(self) -> list[tuple[Transmission, int]]:
        """Return consecutive fragments with their positions."""
        fragments = []
        while True:
            transmission, content = self.load()
            assert isinstance(content, Fragment)
            self.count = content.count
            fragments.append((transmission, content.index))
            if not transmission.more:
                return fragments

    async def hears(self, station: int, *positions: int) -> None:
        has = self.has.setdefault(station, set())
        has |= set(positions)
        sequence = self.k.sequence()
        digest = self.k.digest_of_fragments(sequence, self.count, has)
        heard = Ack(1, self.count, frozenset(has), digest=digest)

        def note(db: Any) -> bool:
            return outbound.record_held_fragments(db, RADIO, sequence, station, self.count, has)

        if await self.k.journal.commit(note) or heard.whole:
            await apply_ack(self.k.outbox.packing, self.k.endings, sequence, heard)

    async def settle(self, outcome: Outcome, *transmissions: Transmission) -> None:
        for transmission in transmissions:
            await self.k.outbox.settle(transmission, outcome, retry_after=3.0)


@asynccontextmanager
async def sky_with_package(path: Path, size: int = 1100) -> AsyncIterator[Sky]:
    async with kit(path, RADIO, station=1) as k:
        await k.post(message={"content": "x" * size}, collapseKey=7)
        yield Sky(k)


async def _send_first_fragment(sky: Sky) -> None:
    ((probe, position),) = sky.burst()
    await sky.hears(5, position)
    await sky.settle(SENT, probe)


async def test_burst_starts_after_first_fragment_is_heard(tmp_path: Path) -> None:
    async with sky_with_package(tmp_path) as sky:
        await _send_first_fragment(sky)
        flight = sky.burst()
        assert [position for _, position in flight] == [1, 2, 3, 4]
        assert sky.k.outbox.load(200) is None
        await sky.hears(5, 1, 2, 4)
        for transmission, position in flight:
            await sky.settle(NOT_SENT if position == 3 else SENT, transmission)
        assert [position for _, position in sky.burst()][:1] == [3]


async def test_missed_fragment_is_known_when_later_fragment_is_heard(
    tmp_path: Path, clock: Any
) -> None:
    async with sky_with_package(tmp_path) as sky:
        await _send_first_fragment(sky)
        flight = sky.burst()
        await sky.hears(5, 1, 3)
        with trio.fail_after(1):
            heard = [
                await sky.k.outbox.wait_for_acknowledgement(transmission)
                for transmission, _ in flight[:3]
            ]
        assert heard == [True, False, True]
        with trio.move_on_after(1) as nothing_known:
            await sky.k.outbox.wait_for_acknowledgement(flight[3][0])
        assert nothing_known.cancelled_caught


async def test_burst_is_not_repeated_until_all_fragments_are_settled(tmp_path: Path) -> None:
    async with sky_with_package(tmp_path) as sky:
        await _send_first_fragment(sky)
        (first, _), (second, _), *rest = sky.burst()
        await sky.settle(NOT_SENT, first, second)
        assert sky.k.outbox.load(200) is None
        await sky.settle(NOT_SENT, *(transmission for transmission, _ in rest))
        assert sky.k.outbox.load(200) is None, "the Package waits for its next try"


async def test_unheard_burst_counts_as_one_attempt(tmp_path: Path, clock: Any) -> None:
    async with sky_with_package(tmp_path) as sky:
        await _send_first_fragment(sky)
        for tries in range(3):
            flight = sky.burst()
            assert {transmission.attempts for transmission, _ in flight} == {tries}
            await sky.settle(NOT_SENT, *(transmission for transmission, _ in flight))
            await trio.sleep(4)
        flight = sky.burst()
        await sky.hears(5, flight[0][1])
        await sky.settle(SENT, flight[0][0])
        await sky.settle(NOT_SENT, *(transmission for transmission, _ in flight[1:]))
        assert sky.load()[0].attempts == 0


async def test_sos_is_sent_within_burst_of_fragments(tmp_path: Path) -> None:
    async with sky_with_package(tmp_path) as sky:
        await _send_first_fragment(sky)
        first, _ = sky.load()
        assert first.more
        await sky.k.post(message={"content": "help"}, priority=100)
        sos, content = sky.load()
        assert (sos.urgent, content.content) == (True, "help")
        second, content = sky.load()
        assert (second.urgent, content.index) == (False, 2)


async def test_canceled_burst_ends_when_fragments_in_flight_are_settled(
    tmp_path: Path,
) -> None:
    async with sky_with_package(tmp_path) as sky, trio.open_nursery() as nursery:
        await _send_first_fragment(sky)
        first, _ = sky.load()
        second, _ = sky.load()
        nursery.start_soon(sky.k.cancellation.cancel, 1, RADIO)
        await trio.testing.wait_all_tasks_blocked()
        assert sky.k.outbox.load(200) is None
        await sky.settle(SENT, first)
        assert sky.k.status(1) is None
        await sky.settle(NOT_SENT, second)
        assert sky.k.status(1) is Status.CANCELED
        assert len(sky.k.outbox) == 0


async def test_replaced_package_collapses_after_burst(tmp_path: Path) -> None:
    async with sky_with_package(tmp_path) as sky:
        await _send_first_fragment(sky)
        flight = sky.burst()
        await sky.k.post(message={"content": "newer"}, collapseKey=7)
        newer, content = sky.load()
        assert content.content == "newer"
        await sky.settle(NOT_SENT, *(transmission for transmission, _ in flight))
        assert sky.k.status(1) is Status.COLLAPSED
        await sky.settle(SENT, newer)
        assert (sky.k.status(2), len(sky.k.outbox)) == (Status.DELIVERED, 0)


async def test_station_with_all_fragments_ends_package_once_during_burst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sky_with_package(tmp_path) as sky:
        await _send_first_fragment(sky)
        flight = sky.burst()
        ends: list[int] = []
        record = sky.k.endings.record

        async def counted(ended: list[EndedDelivery], also: Any = None) -> None:
            ends.extend(each.sequence for each in ended)
            await record(ended, also)

        monkeypatch.setattr(sky.k.endings, "record", counted)
        await sky.hears(6, *range(sky.count))
        with trio.fail_after(1):
            for transmission, _ in flight:
                await sky.k.outbox.wait_for_acknowledgement(transmission)
        await sky.settle(SENT, flight[0][0])
        assert sky.k.status(1) is Status.DELIVERED
        await sky.settle(SENT, *(transmission for transmission, _ in flight[1:]))
        assert (len(sky.k.outbox), sky.k.outbox.load(200)) == (0, None)
        assert ends == [sky.k.sequence()]


async def test_departed_station_does_not_stop_delivery_to_another(
    tmp_path: Path, clock: Any
) -> None:
    async with sky_with_package(tmp_path) as sky:
        await _send_first_fragment(sky)
        await sky.hears(5, *range(5, sky.count))
        await sky.hears(6, *range(5))
        with trio.fail_after(60):
            while sky.k.status(1) is None:
                await sky.k.outbox.wait_until_ready()
                flight = sky.burst()
                new = {position for _, position in flight} - sky.has[6]
                await sky.hears(6, *new)
                for transmission, position in flight:
                    await sky.settle(SENT if position in new else NOT_SENT, transmission)


@pytest.mark.full
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_package_is_delivered_exactly_when_one_station_has_all_fragments(
    data: st.DataObject,
) -> None:
    trio.run(_run_over_lossy_air, data, clock=trio.testing.MockClock(autojump_threshold=0))


async def _run_over_lossy_air(data: st.DataObject) -> None:
    """Some stations hear each packet, and the sender hears some of their answers. Later all packets
    are heard.
    """
    with TemporaryDirectory() as folder:
        async with sky_with_package(Path(folder), data.draw(st.integers(300, 1100))) as sky:
            for turn in range(200):
                heard_by = [5, 6, 7] if turn > 30 else data.draw(_some_stations)
                with trio.fail_after(3600):
                    await sky.k.outbox.wait_until_ready()
                flight = sky.burst()
                positions = [position for _, position in flight]
                assert len(set(positions)) == len(positions)
                gone = set[int]()
                for station in heard_by:
                    lost = set() if turn > 30 else data.draw(st.sets(st.sampled_from(positions)))
                    gone |= set(positions) - lost
                    await sky.hears(station, *set(positions) - lost)
                for transmission, position in flight:
                    await sky.settle(SENT if position in gone else NOT_SENT, transmission)
                is_whole = any(len(has) == sky.count for has in sky.has.values())
                assert (sky.k.status(1) is Status.DELIVERED) is is_whole
                if is_whole:
                    assert len(sky.k.outbox) == 0
                    return
            raise AssertionError("never delivered")


_some_stations = st.lists(st.sampled_from([5, 6, 7]), unique=True)
