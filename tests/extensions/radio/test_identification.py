"""A node's station sends its callsign, rarely, and only after transmissions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.channels.radio_modem import RadioModem, ReceivedPacket, TransmitResult
from fieldagent.extensions.lab.simulator.air import SharedAir
from fieldagent.extensions.radio.identification import (
    IDENTIFY_AFTER_S,
    RETRY_AFTER_S,
    IdentificationTimer,
    open_identified,
)
from fieldagent.extensions.radio.mesh.summaries import FRESH_S, INTERVAL_MAX
from tests.breaking import Put, environment
from tests.extensions.lab.simulator.test_simulate_node import kit, nodes, told
from tests.extensions.radio.radio_kit import on_air, only_what_is_posted, station, until
from tests.kit import RATES
from tests.processes import until as really_until

CALL = "N0CALL-7"
RULE = 600.0
"""Seconds: 47 CFR 97.119(a)."""


@pytest.fixture(params=RATES)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock:
    return trio.testing.MockClock(request.param, autojump_threshold=0)


class Listener:
    """A receiver that records the transmissions and identifications of station 1."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.transmitted: list[float] = []
        self.identified: list[float] = []
        transmit = SharedAir.transmit

        def overhear(air: SharedAir, now: float, number: int, packet: bytes) -> float:
            if number == 1:
                self.transmitted.append(now)
                if CALL.encode() in packet:
                    self.identified.append(now)
            return transmit(air, now, number, packet)

        monkeypatch.setattr(SharedAir, "transmit", overhear)

    def is_lawful(self) -> bool:
        """Return True if the callsign follows each packet within ten minutes."""
        return all(
            any(0 <= at - each <= RULE for at in self.identified) for each in self.transmitted
        )


@pytest.mark.full
async def test_callsign_follows_each_transmission_within_ten_minutes(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_what_is_posted(monkeypatch)
    async with (
        on_air(tmp_path),
        station(tmp_path, 1, tmp_path / "node-1", callsign=CALL) as ada,
        station(tmp_path, 2, tmp_path / "node-2") as ben,
    ):
        listener = Listener(monkeypatch)
        await trio.sleep(4000)
        assert listener.transmitted == []
        for _ in range(60):
            await ada.post()
            await trio.sleep(60)
        # Stations repeat their summaries for an hour after the last news.
        await trio.sleep(FRESH_S + INTERVAL_MAX + RULE)
        assert listener.is_lawful()
        assert len(listener.identified) <= (7200 + INTERVAL_MAX) / IDENTIFY_AFTER_S + 1
        assert ben.neighbours.known[1].callsign == CALL
        count = len(listener.transmitted)
        await trio.sleep(4000)
        assert len(listener.transmitted) == count


async def test_callsign_is_retried_after_busy_channel(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        on_air(tmp_path) as air,
        station(tmp_path, 1, tmp_path / "node-1", callsign=CALL) as ada,
        station(tmp_path, 2, tmp_path / "node-2"),
    ):
        listener = Listener(monkeypatch)
        await ada.outcome(await ada.post())
        await trio.sleep(IDENTIFY_AFTER_S - 30)
        air.nodes.sockets[0].node.busy = True
        await trio.sleep(120)
        assert not listener.identified
        air.nodes.sockets[0].node.busy = False
        await trio.sleep(2 * RETRY_AFTER_S + 35)
        assert len(listener.identified) == 1


class LimitedRadio:
    """A radio whose airtime of this hour is used up, or not."""

    def __init__(self) -> None:
        self.spent = False
        self.on_air: list[bytes] = []

    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        if self.spent and not urgent:
            return TransmitResult.SPENT
        self.on_air.append(packet)
        return TransmitResult.TRANSMITTED

    async def receive(self) -> ReceivedPacket:
        raise AssertionError


async def test_callsign_is_delayed_while_air_time_is_spent(clock: Any) -> None:
    radio = LimitedRadio()

    @asynccontextmanager
    async def opened() -> AsyncIterator[RadioModem]:
        yield radio

    async with open_identified(opened, IdentificationTimer(b"my call")) as air:
        radio.spent = True
        await air.transmit(b"not on the air", urgent=False)
        await trio.sleep(2 * IDENTIFY_AFTER_S)
        radio.spent = False
        await trio.sleep(2 * RETRY_AFTER_S)
        assert radio.on_air == [], "a packet that was not on the air needs no callsign"
        await air.transmit(b"first", urgent=False)
        radio.spent = True
        await trio.sleep(2 * IDENTIFY_AFTER_S)
        radio.spent = False
        await trio.sleep(2 * RETRY_AFTER_S)
        assert radio.on_air == [b"first", b"my call"]


async def test_callsign_is_sent_after_radio_is_plugged_in_again(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        on_air(tmp_path) as air,
        station(tmp_path, 1, tmp_path / "node-1", callsign=CALL) as ada,
        station(tmp_path, 2, tmp_path / "node-2"),
    ):
        listener = Listener(monkeypatch)
        await ada.outcome(await ada.post())
        air.nodes.unplug(air.nodes.sockets[0])
        await trio.sleep(60)
        air.nodes.plug(air.nodes.sockets[0])
        await until(lambda: bool(listener.identified), RULE)


def test_neighbour_lists_callsign_of_agent(tmp_path: Path) -> None:
    soon = Put("fieldagent.extensions.radio.identification:IDENTIFY_AFTER_S", 1.0)
    with (
        nodes(tmp_path, "--seed", "7"),
        kit(tmp_path, 1, environment(tmp_path, soon), **{"radio-callsign": CALL}) as ada,
        kit(tmp_path, 2) as ben,
    ):
        assert ada.post("hello").body["status"] == "Delivered"

        def heard() -> Any:
            (each,) = ben.call("GET", "/api/neighbours").body["neighbours"]
            return each["callsign"]

        really_until(lambda: heard() == CALL)
        listed = told(ben, "neighbours")
        assert CALL in listed and "version 0.1.0" in listed and "1 transmission away" in listed
        assert ben.call("GET", "/api/status").body["notices"] == []
