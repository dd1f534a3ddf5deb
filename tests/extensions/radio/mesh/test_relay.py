"""Neighbours' items for the hub that wait here."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
import trio.testing

from fieldagent.agent.journal import history, outbound
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import EndedDelivery, StoredPackage
from fieldagent.agent.outbound import others_sos
from fieldagent.extensions.radio.mesh.relay import WAITING_ITEMS_MAX, Relay, add_package
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import (
    Channel,
    IncidentState,
    IncidentUpdate,
    Location,
    Message,
    Package,
    Status,
)
from fieldagent.wire.credit import compute_credits
from fieldagent.wire.envelope import Entry, decode, encode
from tests.agent.outbound.test_incident_repeat import check_refused_item_is_retried, in_distress
from tests.kit import START
from tests.running import running

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
AT_S = int(AT.timestamp())


@pytest.mark.parametrize(
    "odd", [Location(46.5, 7.9, AT, altitude=2e6), Location(46.5, 7.9, AT, speed_over_ground=1e5)]
)
async def test_sos_is_relayed_without_impossible_altitude_or_speed(
    tmp_path: Path, odd: Location
) -> None:
    """Regression: such an SOS counted as damaged when read from the disk and was never sent."""
    (heard,) = decode(encode([Entry(7, odd, int(AT.timestamp()), sos=True)])).entries
    journal = Journal(tmp_path / "journal.sqlite3")
    relay = Relay({Channel.SATELLITE}, credits_per_day=10, time_to_live=3600.0, clock=journal.clock)

    def store(heard: Entry) -> Operation[int]:
        def add_package(db: sqlite3.Connection) -> int:
            accepted = relay.store(db, 77, heard, journal.clock.now())
            assert accepted is not None
            return accepted.sequence

        return add_package

    async with running(journal):
        sequence = await journal.commit(store(heard))
        record = outbound.read_kept_package(journal, sequence)
        assert record is not None and record.package.item == Location(46.5, 7.9, AT)
    journal.close()


OWN_LIMIT, OTHERS = 10, others_sos.CREDITS_PER_DAY


@pytest.mark.parametrize("kind", ["an SOS", "an incident update"])
@pytest.mark.parametrize("count", [1, 40])
async def test_sos_items_of_many_stations_stay_within_relay_credits(
    tmp_path: Path, count: int, kind: str
) -> None:
    journal = Journal(tmp_path / "journal.sqlite3")
    limits = {"credits_per_day": OWN_LIMIT, "time_to_live": 3600.0, "clock": journal.clock}
    relay = Relay({Channel.SATELLITE}, **limits)  # type: ignore[arg-type]

    def heard(station: int) -> Entry:
        word = IncidentUpdate(7, IncidentState.SEEN, 9, f"Eve {station}", "y" * 80)
        sos = kind == "an SOS"
        return Entry(station, Message("help " + "y" * 80) if sos else word, AT_S, sos=sos)

    async with running(journal):
        added = [
            await journal.commit(
                lambda db, n=n: relay.store(db, n, heard(n), journal.clock.now())  # type: ignore[misc]
            )
            for n in range(1, count + 1)
        ]
        taken = [each for each in added if each is not None]
        assert len(taken) > 0 and len(taken) + len(relay.waiting) == count, "none is dropped"
        cost = sum(
            compute_credits(len(encode([heard(n)], is_packed=True))) for n in range(len(taken))
        )
        assert cost <= OWN_LIMIT + OTHERS
        assert ("of them belong to an SOS" in relay.find_notice()) == (count > len(taken))
    journal.close()


@pytest.mark.parametrize(("left", "by_satellite"), [(False, 12), (True, 5)])
async def test_only_items_sent_over_satellite_use_relay_credits(
    tmp_path: Path, left: bool, by_satellite: int
) -> None:
    journal = Journal(tmp_path / "journal.sqlite3")
    channels = {Channel.CELLULAR, Channel.SATELLITE}
    limits = {"credits_per_day": 5, "time_to_live": 3600.0, "clock": journal.clock}
    relay = Relay(channels, **limits)  # type: ignore[arg-type]
    allowed = 0
    async with running(journal):
        for number in range(1, 13):
            entry = Entry(number, Message("x"), AT_S)

            def take(db: sqlite3.Connection, entry: Entry = entry) -> StoredPackage | None:
                return relay.store(db, 5, entry, journal.clock.now())

            accepted = await journal.commit(take)
            assert accepted is not None, "the IP link costs nothing"
            sequence = accepted.sequence
            deliveries = outbound.read_deliveries(journal, sequence)
            allowed += Channel.SATELLITE in deliveries
            if left:
                note = partial(history.record_event, event="sent", detail="", at=1.0)
                over = partial(note, sequences=[sequence], channel=Channel.SATELLITE)
                await journal.persist(over)
            ended = [
                EndedDelivery(sequence, each, ChannelDelivery(Status.CANCELED))
                for each in deliveries
            ]
            await journal.persist(outbound.record_ends(ended, journal.clock.now()))
        assert allowed == by_satellite
    journal.close()


@pytest.mark.parametrize("is_sos", [False, True])
async def test_sos_is_relayed_without_credits_for_ordinary_items(
    tmp_path: Path, is_sos: bool
) -> None:
    journal = Journal(tmp_path / "journal.sqlite3")
    limits = {"credits_per_day": 0, "time_to_live": 3600.0, "clock": journal.clock}
    relay = Relay({Channel.SATELLITE}, **limits)  # type: ignore[arg-type]
    entry = Entry(7, Message("help"), AT_S, sos=is_sos)
    async with running(journal):
        accepted = await journal.commit(lambda db: relay.store(db, 5, entry, journal.clock.now()))
        assert (accepted is not None) == is_sos
    journal.close()


@pytest.mark.parametrize("is_sos", [False, True])
async def test_item_that_does_not_fit_into_memory_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_sos: bool
) -> None:
    journal = Journal(tmp_path / "journal.sqlite3")
    limits = {"credits_per_day": 0, "time_to_live": 3600.0, "clock": journal.clock}
    relay = Relay({Channel.SATELLITE}, **limits)  # type: ignore[arg-type]
    async with running(journal):
        await journal.persist(others_sos.spend(OTHERS, journal.clock.now(), journal.clock))
        for number in range(1, WAITING_ITEMS_MAX + 2):
            entry = Entry(number, Message("help"), AT_S, sos=is_sos or number == 1)
            await journal.commit(
                lambda db, entry=entry: relay.store(db, 5, entry, journal.clock.now())  # type: ignore[misc]
            )
    journal.close()
    assert len(relay.waiting) == WAITING_ITEMS_MAX
    assert ((5, 1) in relay.waiting) == (not is_sos), "an SOS is dropped last"
    assert "dropped 1 item of neighbours for the hub" in caplog.text
    assert ("that belong to an SOS" in caplog.text) == is_sos


async def test_refused_relayed_sos_is_retried(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        package = Package(Message("help"), priority=100, channels=frozenset([Channel.SATELLITE]))
        k.intake.queue_relayed(
            await k.journal.persist(
                lambda db: add_package(db, package, b"12345678", START, None, START)
            )
        )
        await check_refused_item_is_retried(k)
