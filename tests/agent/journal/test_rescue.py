"""What is made of rows that were saved, where others that belong to them are lost."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from fieldagent.agent.journal.high_water import HighWater
from fieldagent.agent.journal.rescue.mending import mend
from fieldagent.agent.journal.schema import JOURNAL
from fieldagent.store.sqlite import connect


def test_an_sos_that_waits_belongs_to_the_incident_that_it_raised_though_that_is_over(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with closing(connect(old, JOURNAL, checked=True)) as db:
        body = '{"message":{"content":"help"},"priority":100}'
        db.execute(
            "INSERT INTO package (sequence, id, body, digest, accepted) VALUES (7, 1, ?, x'00', 1)",
            (body,),
        )
        db.execute("INSERT INTO leg (sequence, channel, priority) VALUES (7, 'Satellite', 100)")
        db.execute("INSERT INTO incident VALUES (7, 1, 'closed', 2)")
    said = mend(old, new, HighWater(7, 1), "a row is lost", "old.bad")
    assert "Packages that are whole: 1, 1 of them to be sent" in said
    with closing(sqlite3.connect(new)) as saved:
        assert saved.execute("SELECT * FROM incident_item").fetchall() == [(7, 7)]
        assert saved.execute("SELECT number, state FROM incident").fetchall() == [(7, "closed")]
