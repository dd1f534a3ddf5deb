"""Reports about the air for people: stations in range, faults, and stations with our number."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from fieldagent.agent.channels.air_pace import ACK_WITHIN
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.extensions.radio.contract import RadioPlace
from fieldagent.extensions.radio.mesh.summaries import FRESH_S, INTERVAL_MAX
from fieldagent.extensions.radio.mesh.troubles import AirTroubles, Trouble
from fieldagent.extensions.radio.radios.node import open_node
from fieldagent.package.package import Message
from fieldagent.package.payload import Identity
from fieldagent.wire.envelope import (
    NO_ROUTE,
    Ack,
    Content,
    Entry,
    Introduction,
    RouteToHub,
    Source,
    compute_fragments_digest,
    compute_item_digest,
    decode,
    derive_key,
    encode,
)
from fieldagent.wire.seal import seal
from tests.extensions.radio.radio_kit import Station, on_air, only_what_is_posted, station, until
from tests.kit import RATES

KEY, OTHER = (derive_key(bytes([number] * 32), "AIR") for number in (1, 2))


@pytest.fixture(params=RATES)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock:
    return trio.testing.MockClock(request.param, autojump_threshold=0)


def said(ben: Station) -> list[Content]:
    """Return the contents of the kit's next transmission."""
    transmission = ben.outbox.load(200)
    return [] if transmission is None else [e.content for e in decode(transmission.body).entries]


async def test_neighbour_is_listed_with_signal_until_neighbour_is_silent(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_what_is_posted(monkeypatch)
    async with (
        on_air(tmp_path),
        station(tmp_path, 1, tmp_path / "node-1") as ada,
        station(tmp_path, 2, tmp_path / "node-2") as ben,
    ):
        await ada.outcome(await ada.post())
        heard = ben.neighbours.known[1]
        assert (heard.rssi, heard.snr) == (-80, 6)
        assert ben.neighbours.list_in_range() == [1]
        # Stations repeat their summaries for an hour.
        await trio.sleep(3601 + FRESH_S + INTERVAL_MAX)
        assert ben.neighbours.list_in_range() == []


@pytest.mark.parametrize(
    ("entries", "hops"),
    [
        ([Entry(1, Message("x"))], None),
        ([Entry(0, RouteToHub(0))], 0),
        ([Entry(0, RouteToHub(2, 10))], 2),
        ([Entry(0, RouteToHub(0, 40))], None),
        ([Entry(0, RouteToHub(0)), Entry(0, RouteToHub(NO_ROUTE))], None),
    ],
    ids=["no report", "own link", "over others", "expired", "withdrawn"],
)
async def test_route_report_of_neighbour_sets_hops_to_hub(
    tmp_path: Path, clock: Any, entries: list[Entry], hops: int | None
) -> None:
    async with on_air(tmp_path), station(tmp_path, 2, tmp_path / "nowhere") as ben:
        for entry in entries:
            await ben.reception.receive(encode([entry], origin=5))
        way = ben.words.hub_routes.get_valid_routes().get(5)
        assert (None if way is None else way.hops) == hops


async def test_introduction_is_repeated_for_new_station(tmp_path: Path, clock: Any) -> None:
    async with on_air(tmp_path), station(tmp_path, 2, tmp_path / "nowhere") as ben:
        for number in (5, 5, 6):
            item = Entry(number, Message(f"{trio.current_time()}"))
            await ben.reception.receive(encode([item], origin=number))
            await trio.sleep(ACK_WITHIN)
            names = [type(each) for each in said(ben)].count(Introduction)
            # This test settles no transmission, so the introduction travels along until it has
            # certainly left.
            assert names == 1
            ben.words._introduced = trio.current_time() + 10**10


@pytest.mark.full
@pytest.mark.parametrize(
    ("packet", "keys", "trouble"),
    [
        (encode([Entry(1, Message("x"))], origin=5, key=OTHER), (KEY,), Trouble.WRONG_KEY),
        (encode([Entry(1, Message("x"))], origin=5), (KEY,), Trouble.NO_TAG),
        (encode([Entry(1, Message("x"))], origin=5, key=OTHER), (), Trouble.NO_KEY),
        (seal(encode([Entry(1, Message("x"))], origin=5), OTHER), (KEY,), Trouble.WRONG_KEY),
        (seal(encode([Entry(1, Message("x"))], origin=5), OTHER), (), Trouble.NO_KEY),
        (seal(encode([Entry(1, Message("x"))], origin=5), KEY), (KEY,), Trouble.SEALED),
        (b"CQ CQ CQ", (), Trouble.UNREADABLE),
        (b"", (), Trouble.UNREADABLE),
        (encode([Entry(1, Message("whose?"))]), (), Trouble.UNREADABLE),
    ],
)
async def test_packet_fault_is_logged_once_per_minute_and_counted(
    tmp_path: Path,
    clock: Any,
    caplog: pytest.LogCaptureFixture,
    packet: bytes,
    keys: tuple[bytes, ...],
    trouble: Trouble,
) -> None:
    async with on_air(tmp_path), station(tmp_path, 2, tmp_path / "nowhere", keys=keys) as ben:
        with caplog.at_level(logging.INFO, "fieldagent.extensions.radio.mesh"):
            for _ in range(100):
                await ben.reception.receive(packet)
            await trio.sleep(61)
            await ben.reception.receive(packet)
        lines = [record.message for record in caplog.records if trouble.advice in record.message]
        assert [line.split()[:2] for line in lines] == [["a", "packet"], ["100", "packets"]]
        assert ben.troubles.get_counts()[trouble.member] == 101
        (notice,) = ben.troubles.list_notices(lambda at: at)
        assert notice.startswith("101 packets were heard")
        assert trouble.advice in notice
        await trio.sleep(3601)
        assert ben.troubles.list_notices(lambda at: at) == []


def test_each_kind_of_trouble_has_counter() -> None:
    members = AirTroubles(lambda: 0.0).get_counts()
    assert len(members) == len(Trouble)
    assert set(members.values()) == {0}


async def test_kits_with_same_station_number_report_conflict_and_send_no_ack(
    tmp_path: Path, clock: Any
) -> None:
    """Two kits with one number, and a third one. The third one's post is heard and not
    confirmed.
    """
    async with (
        on_air(tmp_path, count=3),
        station(tmp_path, 7, tmp_path / "node-1") as ada,
        station(tmp_path / "clone", 7, tmp_path / "node-2") as twin,
        station(tmp_path, 3, tmp_path / "node-3") as ben,
    ):
        await ada.post(message={"content": "I am 7"})
        await until(lambda: twin.troubles.is_recent(Trouble.NAMESAKE))
        # The other kit has sent no item of its own and is recognised in any case.
        await until(lambda: ada.troubles.is_recent(Trouble.NAMESAKE))
        await until(lambda: "I am 7" in twin.messages())
        sequence = await ben.post(message={"content": "who has it?"})
        await until(lambda: {"who has it?"} <= {*ada.messages()} & {*twin.messages()})
        await trio.sleep(30)
        assert sequence in ben.outbox._queue, "no kit has confirmed the item"
        for kit in (ada, twin):
            (notice,) = kit.troubles.list_notices(lambda at: at)
            assert "another kit with this kit's radio-station" in notice


async def test_third_kit_reports_two_kits_with_same_station_number(
    tmp_path: Path, clock: Any
) -> None:
    """The two do not hear each other, and have the same name, for example from the same
    card image.
    """
    async with (
        on_air(tmp_path, count=3, topology="1 3\n2 3\n"),
        station(tmp_path, 7, tmp_path / "node-1") as ada,
        station(tmp_path / "clone", 7, tmp_path / "node-2") as twin,
        station(tmp_path, 3, tmp_path / "node-3") as ben,
    ):
        for text in ("one", "two"):
            await ada.post(message={"content": f"Ada {text}"})
            await until(lambda text=text: f"Ada {text}" in ben.messages())  # type: ignore[misc]
            assert not ben.troubles.is_recent(Trouble.DUPLICATE_STATION), (
                "a lost journal is possible"
            )
            await twin.post(message={"content": f"twin {text}"})
            await until(lambda text=text: f"twin {text}" in ben.messages())  # type: ignore[misc]
        (notice,) = ben.troubles.list_notices(lambda at: at)
        assert "(station 7) from one of two other kits with the same radio-station" in notice
        assert not ada.troubles.is_recent(Trouble.NAMESAKE), "Ada does not hear the other kit"


async def test_renamed_kit_and_lost_journal_are_not_reported_as_twins(
    tmp_path: Path, clock: Any
) -> None:
    async with on_air(tmp_path), station(tmp_path, 2, tmp_path / "nowhere") as ben:
        # The second name is the one in memory while its disk fails.
        introductions = (
            (50_000_000, "Hut"),
            (1_900_000_000, "Boat"),
            (50_000_001, "Hut"),
            (9, "Hut"),
        )
        for number, name in introductions:
            who = Entry(5, Introduction(Identity("5", name, "Device")))
            item = Entry(number, Message(f"item {number}"))
            await ben.reception.receive(encode([who, item], origin=5))
            # A neighbour repeats an earlier item.
            again = Entry(1_900_000_001 + number % 7, Message("before"))
            await ben.reception.receive(encode([again, Entry(0, Source(6, 1))], origin=5))
        assert not ben.troubles.is_recent(Trouble.DUPLICATE_STATION)


async def test_acks_resume_hour_after_number_conflict(tmp_path: Path, clock: Any) -> None:
    async with on_air(tmp_path), station(tmp_path, 2, tmp_path / "nowhere") as ben:
        item, later = Entry(1, Message("x")), Entry(2, Message("y"))
        await ben.reception.receive(encode([Entry(9, Message("a twin's"))], origin=2))
        assert ben.messages() == ["a twin's"]
        await ben.reception.receive(encode([item], origin=5))
        assert not any(isinstance(each, Ack) and each.count for each in said(ben))
        await trio.sleep(3601)
        await ben.reception.receive(encode([later], origin=5))
        summary = Ack(
            5, 0, frozenset({0}), digest=compute_fragments_digest([compute_item_digest(later)])
        )
        assert summary in said(ben)


@pytest.mark.parametrize("how", ["recorded", "echoed"])
async def test_own_packets_heard_again_cause_no_number_conflict(
    tmp_path: Path, clock: Any, how: str
) -> None:
    """The packets come from a replayed recording, or from a radio or repeater that returns them."""
    async with (
        on_air(tmp_path),
        station(tmp_path, 2, tmp_path / "node-2") as ben,
        open_node(RadioPlace(str(tmp_path / "node-1")), ChannelLink()) as ear,
    ):
        if how == "recorded":
            await ben.post()
            await ben.reception.receive((await ear.receive()).body)
        else:
            # The packet does not show its sender.
            ben.words.introduce(is_immediate=True)
            ben.outbox._queue.wake()
            await ear.transmit((await ear.receive()).body, urgent=False)
            await trio.sleep(10)
        assert not ben.troubles.is_recent(Trouble.NAMESAKE)
        assert ben.messages() == []


@pytest.mark.parametrize("known", [True, False])
async def test_introduction_of_new_station_is_answered_once(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Without an answer, a kit that is switched on later would not know its neighbours, and its
    neighbours would not miss that kit.
    """
    only_what_is_posted(monkeypatch)
    hello = Entry(5, Introduction(Identity("5", "Kit 5", "Device")))
    async with on_air(tmp_path) as sky, station(tmp_path, 1, tmp_path / "node-1") as kit:
        if known:
            await kit.reception.receive(encode([hello], origin=5))
            await trio.sleep(60)
        before = len(sky.log)
        await kit.reception.receive(encode([hello], origin=5))
        await trio.sleep(60)
        said = [line for line in sky.log[before:] if "transmits" in line]
        assert len(said) == (0 if known else 1)
