"""The handling of rescued rows whose related rows are lost."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from fieldagent.agent.journal import inbound, outbound
from fieldagent.agent.journal.high_water import HighWater
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import DAMAGED_DELIVERY, RELAYED, EndedDelivery
from fieldagent.agent.journal.repair import write_repaired_journal
from fieldagent.agent.journal.schema import JOURNAL
from fieldagent.extensions.radio.mesh.relay import Relay, add_package
from fieldagent.package.package import Channel, Message, Package
from fieldagent.store.sqlite import connect
from fieldagent.wire.envelope import Entry


def test_waiting_sos_keeps_its_closed_incident_after_the_repair(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with closing(connect(old, JOURNAL, is_checked=True)) as db:
        body = '{"message":{"content":"help"},"priority":100}'
        db.execute(
            "INSERT INTO package (sequence, id, body, digest, accepted) VALUES (7, 1, ?, x'00', 1)",
            (body,),
        )
        db.execute("INSERT INTO leg (sequence, channel, priority) VALUES (7, 'Satellite', 100)")
        db.execute("INSERT INTO incident VALUES (7, 1, 'closed', 2)")
    said = write_repaired_journal(old, new, HighWater(7, 1), "a row is lost", "old.bad")
    assert "intact Packages: 1, 1 of them to be sent" in said
    with closing(sqlite3.connect(new)) as saved:
        assert saved.execute("SELECT * FROM incident_item").fetchall() == [(7, 7)]
        assert saved.execute("SELECT number, state FROM incident").fetchall() == [(7, "closed")]


NEIGHBOUR, RAISED, NUMBER = 77, 40, 42


@pytest.mark.parametrize("is_known", [True, False])
def test_neighbours_sos_never_becomes_the_kits_own(tmp_path: Path, is_known: bool) -> None:
    """The row with its owner is lost. If no other row shows the owner, the Package ends, and is
    sent again when its kit asks.
    """
    old, new = tmp_path / "old", tmp_path / "new"
    package = Package(Message("help"), channels=frozenset({Channel.SATELLITE}), priority=100)
    with closing(connect(old, JOURNAL, is_checked=True)) as db:
        added = add_package(db, package, b"identity", 1.0, None, 1.0)
        outbound.mark_relayed(db, added.sequence, NEIGHBOUR, NUMBER, NUMBER - RAISED)
        db.execute("DELETE FROM carried")
        db.execute(
            "INSERT INTO heard_incident VALUES (?, ?, 'open', 1, 1, '')", (NEIGHBOUR, RAISED)
        )
        if is_known:
            inbound.mark_arrived(db, -NEIGHBOUR, NUMBER, RELAYED + b"identity", 1.0, sos=True)
    said = write_repaired_journal(old, new, HighWater(added.sequence), "a row is lost", "old.bad")
    with closing(sqlite3.connect(new)) as saved:
        carried = saved.execute("SELECT * FROM carried").fetchall()
        ends = saved.execute("SELECT status, reason FROM leg").fetchall()
        assert saved.execute("SELECT * FROM incident").fetchall() == []
        assert saved.execute("SELECT * FROM incident_item").fetchall() == []
    if is_known:
        assert carried == [(added.sequence, NEIGHBOUR, NUMBER, NUMBER - RAISED)]
        assert ends == [(None, "")]
    else:
        assert (carried, ends) == ([], [("Error", "damaged")])
        assert f"damaged and not sent: {-added.sequence}" in said


@pytest.mark.parametrize("by", ["what it has come to", "its own number"])
@pytest.mark.parametrize("when", ["at the start", "as it is to leave"])
def test_damaged_item_of_a_neighbour_is_accepted_again(tmp_path: Path, when: str, by: str) -> None:
    """The neighbour asks until the hub has the item, and may be in range of no other kit."""
    with closing(Journal(tmp_path / "journal.sqlite3")) as journal:
        clock = journal.clock
    relay = Relay({Channel.SATELLITE}, credits_per_day=9, time_to_live=99.0, clock=clock)
    entry = Entry(NUMBER, Message("help"), 1_790_000_000, sos=True)
    other = replace(entry, sequence=NUMBER + 1)
    old, new = tmp_path / "old", tmp_path / "new"
    with closing(connect(old, JOURNAL, is_checked=True)) as db:
        added = relay.store(db, NEIGHBOUR, entry, 1.0)
        assert added is not None and relay.store(db, NEIGHBOUR, other, 1.0) is not None
        assert relay.store(db, NEIGHBOUR, entry, 1.0) is None
        db.execute("UPDATE package SET body = 'x' WHERE sequence = ?", [added.sequence])
        if by == "what it has come to":
            db.execute("DELETE FROM carried WHERE sequence = ?", [added.sequence])
        else:
            db.execute("UPDATE package SET digest = x'00' WHERE sequence = ?", [added.sequence])
        if when == "as it is to leave":
            outbound.record_ends(
                [EndedDelivery(added.sequence, Channel.SATELLITE, DAMAGED_DELIVERY)], 2.0
            )(db)
    if when == "at the start":
        write_repaired_journal(
            old, new, HighWater(added.sequence + 1), "a row is damaged", "old.bad"
        )
    with closing(connect(new if when == "at the start" else old, JOURNAL, is_checked=True)) as db:
        assert relay.store(db, NEIGHBOUR, other, 3.0) is None
        again = relay.store(db, NEIGHBOUR, entry, 3.0)
        assert again is not None and again.origin == NEIGHBOUR
        assert relay.store(db, NEIGHBOUR, entry, 3.0) is None
