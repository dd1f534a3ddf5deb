"""Radios with small packets: LoRaWAN's slowest rate allows 51 bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.journal import inbound
from fieldagent.extensions.lab.simulator.air import SharedAir
from fieldagent.package.package import Channel, Status
from fieldagent.wire.envelope import derive_key
from tests.extensions.lab.simulator.test_simulate_node import kit, nodes, told
from tests.extensions.radio.radio_kit import on_air, station, until
from tests.extensions.radio.test_radio import data
from tests.kit import RATES

KEY = derive_key(bytes(32), "AIR")
LONG = "Weather turns, we stay at the hut tonight. " * 4
SMALL = 51


@pytest.fixture(params=RATES)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock:
    return trio.testing.MockClock(request.param, autojump_threshold=0)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the size of each packet on the air."""
    lengths: list[int] = []
    transmit = SharedAir.transmit

    def measured(air: SharedAir, now: float, number: int, packet: bytes) -> float:
        lengths.append(len(packet))
        return transmit(air, now, number, packet)

    monkeypatch.setattr(SharedAir, "transmit", measured)
    return lengths


@pytest.mark.full
async def test_team_traffic_fits_in_packets_of_51_bytes(
    tmp_path: Path, clock: Any, sizes: list[int]
) -> None:
    """A line of three kits whose ends do not hear each other, with 10 % loss, a key, and a 5-byte
    number. They send messages, an SOS, and data in many fragments.
    """
    numbers = (1, 2, 3_000_000_000)
    terms: dict[str, Any] = {"keys": (KEY,), "packet_bytes": SMALL}
    async with (
        on_air(tmp_path, {"loss": 0.1}, 3, topology="1 2\n2 3\n"),
        station(tmp_path, numbers[0], tmp_path / "node-1", **terms) as ada,
        station(tmp_path, numbers[1], tmp_path / "node-2", **terms) as ben,
        station(tmp_path, numbers[2], tmp_path / "node-3", **terms) as eve,
    ):
        await ada.post(message={"content": LONG})
        await eve.post(message={"content": "fine here"})
        await ben.post(data=data(250))
        await ada.post(message={"content": "help, all of us"}, priority=100)
        await until(lambda: len(eve.messages()) == 3 and len(ada.messages()) == 2)
        await until(lambda: len(ben.messages()) == 3)
        assert {LONG, "help, all of us"} < set(eve.messages())
    assert max(sizes) <= SMALL


async def test_too_large_package_ends_with_error_and_blocks_no_other(
    tmp_path: Path, clock: Any
) -> None:
    async with (
        on_air(tmp_path),
        station(tmp_path, 1, tmp_path / "node-1", keys=(KEY,), packet_bytes=SMALL) as ada,
        station(tmp_path, 2, tmp_path / "node-2", keys=(KEY,), packet_bytes=SMALL) as ben,
    ):
        large = await ada.post(data=data(5000))
        assert await ada.outcome(await ada.post()) is Status.DELIVERED
        ended = await ada.endings.wait_for_outcome(large)
        assert ended.status is Status.ERROR
        assert ended.deliveries[Channel.RADIO].reason.startswith("too large: 50")
        assert ben.messages() == ["hello"]
        # The introduction has its own packet if it does not fit beside a message.
        await until(lambda: inbound.read_station_names(ben.journal).get(1) == "Kit 1", 60)


@pytest.mark.full
async def test_half_sent_item_arrives_once_after_packet_size_shrinks(
    tmp_path: Path, clock: Any, sizes: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """The kit that changes first temporarily hears news about fragments of the former size."""
    ports = [tmp_path / f"node-{number}" for number in (1, 2)]
    async with on_air(tmp_path, {"loss": 0.2}):
        async with (
            station(tmp_path, 1, ports[0], keys=(KEY,)) as ada,
            station(tmp_path, 2, ports[1], keys=(KEY,)) as ben,
        ):
            await ada.post(data=data(1200))
            # One packet goes first, and the others after its answer.
            while not ada.journal.read("SELECT 1 FROM fragment_held"):
                await trio.sleep(0.05)
            assert ben.messages() == []
        sizes.clear()
        async with (
            station(tmp_path, 1, ports[0], keys=(KEY,), packet_bytes=SMALL) as ada,
            station(tmp_path, 2, ports[1], keys=(KEY,)) as ben,
        ):
            await until(lambda: ben.messages() == [data(1200)["payload"]])
            await until(lambda: len(ada.queues[Channel.RADIO]) == 0)
            await trio.sleep(600)
            assert ben.messages() == [data(1200)["payload"]]
    assert "a confirmation of number" not in caplog.text


@pytest.mark.full
def test_packet_size_of_node_is_reported_with_setting(tmp_path: Path) -> None:
    key = {"radio-key": "0b" * 32}
    small = {**key, "radio-packet-bytes": str(SMALL)}
    with nodes(tmp_path, "--seed", "7", "--packet-bytes", str(SMALL)):
        with kit(tmp_path, 1, {}, **key) as ada:
            ada.expect("the node accepts packets of 51 bytes, not 200: set radio-packet-bytes=51")
            assert "set radio-packet-bytes=51" in told(ada, "status")
        with kit(tmp_path, 1, {}, **small) as ada, kit(tmp_path, 2, {}, **small) as ben:
            assert ada.post(LONG).body["status"] == "Delivered"
            assert LONG in ben.expect("hook: ")
            assert ada.post("leg broken", priority=100).body["status"] == "Delivered"
            assert "leg broken" in ben.expect("hook: ")
            cost = ada.call("POST", "/api/package/cost", {"message": {"content": "x" * 160}})
            assert cost.body["channels"]["Radio"]["parts"] == 10
