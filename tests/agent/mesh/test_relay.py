"""What a neighbour asks to bring to the hub, as it waits here."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.mesh.relay import Relay
from fieldagent.package.package import Channel, Location
from fieldagent.wire.envelope import Entry, decode, encode
from tests.running import running

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    "odd", [Location(46.5, 7.9, AT, altitude=2e6), Location(46.5, 7.9, AT, speed_over_ground=1e5)]
)
async def test_an_sos_whose_height_or_speed_cannot_be_is_brought_without_it(
    tmp_path: Path, odd: Location
) -> None:
    """Read from the disk it was taken for damaged, and never sent."""
    (heard,) = decode(encode([Entry(7, odd, int(AT.timestamp()), sos=True)])).entries
    journal = Journal(tmp_path / "journal.sqlite3")
    relay = Relay({Channel.SATELLITE}, credits_per_day=10, time_to_live=3600.0, clock=journal.clock)

    def store(heard: Entry) -> Operation[int]:
        def enter(db: sqlite3.Connection) -> int:
            accepted = relay.store(db, 77, heard, journal.clock.now())
            assert accepted is not None
            return accepted.sequence

        return enter

    async with running(journal):
        sequence = await journal.commit(store(heard))
        record = outbound.package(journal, sequence)
        assert record is not None and record.package.item == Location(46.5, 7.9, AT)
    journal.close()
