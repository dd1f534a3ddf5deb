"""The airtime limit of a radio: within any hour, over restarts, and by each law."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
import trio
import trio.testing

from fieldagent.agent.channels.air_time import HOUR, UNSAVED_SHARE_MAX, AirLimit, AirTime
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import AirReception, ReceivedPacket, TransmitResult
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.spending import read_air_time, store_air_time_regularly
from fieldagent.agent.outbound.piggyback import Piggyback, RepeatedPacket
from fieldagent.extensions.radio import driver as radio
from fieldagent.extensions.radio.counted_air import FRAME_BYTES, CountedModem, open_counted
from fieldagent.extensions.radio.radios.regions import (
    FCC,
    REGIONS,
    find_air_limit,
    find_region_faults,
)
from fieldagent.package.package import SOS_PRIORITY, Channel, Message, Package
from fieldagent.system.properties import WrongProperty
from fieldagent.wire.envelope import Entry, decode
from tests.extensions.lab.simulator.test_simulate_node import kit, nodes
from tests.kit import START
from tests.kit import kit as core
from tests.kit import until as core_until
from tests.processes import Agent, until
from tests.running import running


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def at(clock: Clock, now: float) -> None:
    clock.now = now


def limited(percent: float, known: dict[int, float] = {}) -> tuple[Clock, AirTime]:  # noqa: B006
    clock = Clock()
    used = AirTime(clock, known)
    used.narrow(AirLimit(percent))
    return clock, used


def test_air_time_limit_applies_to_last_hour() -> None:
    clock, used = limited(1.0)
    assert used.can_send(36.0, urgent=False)
    used.record_use(20.0)
    at(clock, 1800.0)
    used.record_use(16.0)
    assert used.compute_remaining() == 0
    assert not used.can_send(0.1, urgent=False)
    assert used.can_send(36.0, urgent=True)
    assert not used.can_send(36.1, urgent=True)
    assert used.find_notice() == ""
    used.record_use(1.0)
    assert used.find_notice().startswith("an SOS has taken more air-time than this hour has: 37 s")
    used.record_use(-1.0)
    at(clock, 3599.0)
    assert used.compute_remaining() == 0
    at(clock, 3720.0)
    assert used.compute_remaining() == 20
    at(clock, 9000.0)
    assert used.compute_remaining() == 36


def test_sos_beyond_air_time_limit_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    _, used = limited(0.1)
    used.record_use(3.5)
    assert used.can_send(0.5, urgent=True)
    assert "an SOS takes more air-time than this hour has" in caplog.text


def test_air_time_without_limit_is_unlimited() -> None:
    used = AirTime(Clock())
    used.record_use(HOUR)
    assert used.can_send(10.0, urgent=False) and not used.is_limited() and used.find_notice() == ""


def test_lower_of_two_air_time_limits_applies() -> None:
    _, used = limited(10.0)
    used.narrow(AirLimit(1.0))
    used.narrow(AirLimit(10.0))
    assert used.compute_remaining() == 36


def test_dwell_time_limits_ordinary_packets_to_400_ms() -> None:
    clock = Clock()
    used = AirTime(clock)
    used.narrow(AirLimit(dwell=FCC))
    used.record_use(0.3)
    assert not used.can_send(0.2, urgent=False)
    assert used.can_send(0.2, urgent=True)
    at(clock, 20.0)
    assert used.can_send(0.4, urgent=False)
    assert not used.can_send(0.41, urgent=False)


@pytest.mark.parametrize(
    ("region", "frequency", "bandwidth", "allowed"),
    [
        ("EU868", 869_525_000, 125_000, AirLimit(10.0)),
        ("EU868", 868_100_000, 125_000, AirLimit(1.0)),
        ("EU868", 869_000_000, None, AirLimit(0.1)),
        ("EU433", 433_500_000, None, AirLimit(10.0)),
        ("US915", 915_000_000, 500_000, AirLimit()),
        ("US915", 915_000_000, 125_000, AirLimit(dwell=FCC)),
        ("AU915", 916_000_000, 125_000, AirLimit()),
        ("amateur", None, None, AirLimit()),
    ],
)
def test_region_and_frequency_determine_air_time_limit(
    region: str, frequency: int | None, bandwidth: int | None, allowed: AirLimit
) -> None:
    assert find_air_limit(region, frequency, bandwidth) == allowed


def test_bands_of_region_do_not_overlap() -> None:
    for bands in REGIONS.values():
        assert all(one.high <= two.low for one, two in pairwise(bands))
    with pytest.raises(WrongProperty, match=r"EU868 has nothing at 869\.3 MHz, but 863 to 865"):
        find_air_limit("EU868", 869_300_000, None)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ("radio-region=EU868", "radio-region EU868 has a different limit in each band"),
        ("radio-region=EU868 radio-frequency=866", "needs radio-bit-rate"),
        ("radio-region=EU868 radio-frequency=900 radio-bit-rate=9600", "nothing at 900 MHz"),
        ("radio-region=US915 radio-protocol=rnode rnode-frequency=868.1", "902 to 928 MHz"),
        ("radio-region=eu868 radio-protocol=rnode rnode-frequency=868.1", ""),
        ("radio-region=AU915 radio-frequency=916", ""),
        ("radio-region=amateur", ""),
        ("radio-region=EU868 radio-protocol=meshtastic", ""),
    ],
)
def test_faults_of_region_settings_are_reported(settings: str, fault: str) -> None:
    problems = find_region_faults(dict(pair.split("=", 1) for pair in settings.split()))
    assert fault in "".join(problems) and bool(problems) is bool(fault)


class ScriptedRadio:
    """A radio that transmits each packet or refuses it."""

    result = TransmitResult.TRANSMITTED

    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        await trio.lowlevel.checkpoint()
        return self.result

    async def receive(self) -> ReceivedPacket:
        await trio.sleep_forever()
        raise AssertionError


async def test_radio_keeps_air_time_limit_with_reserve_for_sos() -> None:
    silence, link, sent = ScriptedRadio(), ChannelLink(), 0
    link.air_time.narrow(AirLimit(0.1))

    @asynccontextmanager
    async def opened() -> AsyncIterator[ScriptedRadio]:
        yield silence

    packet = bytes(200 - FRAME_BYTES)  # a sixth of a second
    async with open_counted(opened, link, 9600) as modem:
        assert isinstance(modem, CountedModem)
        silence.result = TransmitResult.DROPPED
        assert await modem.transmit(packet, urgent=False) is TransmitResult.DROPPED
        assert link.air_time.compute_used() == 0, "the dropped packet was not on the air"
        silence.result = TransmitResult.TRANSMITTED
        while await modem.transmit(packet, urgent=False) is not TransmitResult.SPENT:
            sent += 1
        assert sent == 21
        while await modem.transmit(packet, urgent=True) is not TransmitResult.SPENT:
            sent += 1
    assert sent == 43


@pytest.mark.parametrize(("share", "is_sent"), [(1.4, True), (1.6, False)])
async def test_sos_of_others_leaves_air_time_for_the_kits_own(
    tmp_path: Path, clock: trio.testing.MockClock, share: float, is_sent: bool
) -> None:
    """`share` of the hour's allowance is used."""
    sent: list[str] = []

    class Heard(ScriptedRadio):
        async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
            await trio.sleep(1)
            contents = [each.content for each in decode(packet).entries]
            sent.extend(each.content for each in contents if isinstance(each, Message))
            return TransmitResult.TRANSMITTED

    @asynccontextmanager
    async def opened() -> AsyncIterator[CountedModem]:
        yield CountedModem(Heard(), k.outbox.link, 9600)

    async with core(tmp_path, Channel.RADIO) as k, trio.open_nursery() as nursery:
        limit = k.outbox.link.air_time
        limit.narrow(AirLimit(10))
        limit.record_use(share * 360)
        receive = cast(AirReception, k.reception)
        run = partial(radio.run, opened, k.outbox, receive, k.outbox.link, random=Random(1))
        nursery.start_soon(run)
        package = Package(Message("SOS of a stranger"), priority=SOS_PRIORITY)
        await k.intake.accept(package, None, handle="!00000001")
        await trio.sleep(5)
        assert sent == (["SOS of a stranger"] if is_sent else [])
        await k.post(message={"content": "leg broken"}, priority=SOS_PRIORITY)
        await core_until(lambda: "leg broken" in sent)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("origin", [1, 5])
async def test_repeated_sos_is_marked_as_that_of_another_station(
    tmp_path: Path, clock: trio.testing.MockClock, origin: int
) -> None:
    async with core(tmp_path, Channel.RADIO, station=1) as k:
        entry = Entry(7, Message("help"), int(START), sos=True)
        repeat = RepeatedPacket(origin, [entry], sos=True)
        packed = k.outbox.packing._pack_repeat(repeat, 200, cast(Piggyback, None))
        assert packed is not None and packed.urgent
        assert packed.is_of_others == (origin != 1)


async def test_used_air_time_survives_kill_with_few_writes(tmp_path: Path) -> None:
    clock, used = limited(10.0)
    path = tmp_path / "journal.sqlite3"
    journal = Journal(path)
    async with running(journal), trio.open_nursery() as nursery:
        nursery.start_soon(store_air_time_regularly, journal, used)
        await trio.testing.wait_all_tasks_blocked()
        before = journal.commits
        for minute in range(30):
            at(clock, 60.0 * minute)
            used.record_use(6.0)
            while (
                sum(read_air_time(journal).values())
                <= used.compute_used() - UNSAVED_SHARE_MAX * 360
            ):
                await trio.lowlevel.checkpoint()
        assert journal.commits - before <= 180 / (UNSAVED_SHARE_MAX * 360)
        nursery.cancel_scope.cancel()
    journal.close()
    with closing(sqlite3.connect(path)) as db:
        ((written,),) = db.execute("SELECT sum(seconds) FROM air_time")
    assert 180 - UNSAVED_SHARE_MAX * 360 < written <= 180
    again = Journal(path)
    usage = AirTime(clock, read_air_time(again))
    assert usage.compute_used() == written
    usage.narrow(AirLimit(10.0))
    usage.narrow(AirLimit(10.0))
    assert usage.compute_used() == pytest.approx(written + UNSAVED_SHARE_MAX * 360), (
        "the share that may be unsaved is added once"
    )
    again.close()


def test_kit_keeps_and_reports_air_time_limit_after_kill(tmp_path: Path) -> None:
    """The limit is 3.6 s per hour at 2 400 bit/s, and a message takes 0.7 s. Some messages wait,
    also after a kill, and an SOS is sent.
    """
    law: dict[str, Any] = {
        "radio-region": "EU868",
        "radio-frequency": "869.0",
        "radio-bit-rate": "2400",
    }

    def radio(kit: Agent) -> dict[str, Any]:
        status: dict[str, Any] = kit.call("GET", "/api/status").body["channels"]["Radio"]
        return status

    with nodes(tmp_path, "--seed", "7"), kit(tmp_path, 2) as ben:
        with kit(tmp_path, 1, **law) as ada:
            for number in range(8):
                package = {"message": {"content": f"{number} {'x' * 140}"}}
                ada.call("POST", "/api/package", package, Prefer="wait=0")
            until(lambda: "air-time" in radio(ada)["reason"])
            assert radio(ada)["airTimeLeft"] <= 1 and radio(ada)["queued"] >= 3
            figures = str(ada.call("GET", "/metrics").body)
            assert 'air_time_left_seconds{channel="Radio"}' in figures
            ada.kill()
        with kit(tmp_path, 1, **law) as ada:
            assert radio(ada)["airTimeLeft"] <= 1
            assert ada.call("POST", "/api/sos", {"text": "leg broken"}).status == 201
            until(lambda: "leg broken" in str(ben.call("GET", "/api/inbound").body))
            assert radio(ada)["queued"] >= 3
