"""Data that a later program accepts during its trial is in the earlier program's journal
afterwards.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fieldagent.agent.journal.carry_over import replace_content
from fieldagent.agent.journal.schema import JOURNAL
from tests.processes import agent

LATER = {
    "as it is": "",
    "more": """
        CREATE TABLE later (x);
        ALTER TABLE package ADD COLUMN later TEXT NOT NULL DEFAULT 'x';
        ALTER TABLE incident ADD COLUMN later TEXT;
        CREATE TRIGGER later_too AFTER INSERT ON package BEGIN INSERT INTO later VALUES (1); END;
    """,
    "a table is a view now": """
        ALTER TABLE spent RENAME TO costs;
        CREATE VIEW spent AS SELECT day, channel, bytes, credits FROM costs;
    """,
}
"""Changes that a later version may make to its tables."""
SHAPE = """
receipt.sequence receipt.by receipt.at receipt.proved owed.channel owed.sequence owed.at
owed.sos owed.digest story.number story.sequence story.channel story.event story.detail
story.at story.times incident.number incident.raised incident.state incident.ended
incident_item.sequence incident_item.incident incident_word.number incident_word.station
incident_word.incident incident_word.says incident_word.by incident_word.text
incident_word.at incident_word.proved heard_incident.station heard_incident.number
heard_incident.state heard_incident.since heard_incident.at heard_incident.text
carried.sequence carried.origin carried.origin_sequence carried.back fragment_held.sequence
fragment_held.channel fragment_held.holder
fragment_held.count fragment_held.position reserve.filler forgotten.one forgotten.id
dead_letter.number dead_letter.channel dead_letter.body dead_letter.reason
dead_letter.received dead_letter_tally.one dead_letter_tally.came dead_letter_tally.dropped
loss.number loss.at loss.text loss.packages loss.payloads lived.one lived.boot
lived.since_boot lived.lived lived.ahead lived.trusted lived.crc undated.sequence
budget_day.one budget_day.day budget_day.since budget_day.trusted budget_day.carried
package.sequence package.id package.body package.digest package.idempotency_key
package.accepted package.expires package.status package.ended package.crc package.dated
leg.sequence leg.channel leg.status leg.reason leg.tries leg.ended leg.priority
intent.channel intent.body intent.urgent intent.tries intent.pieces intent.modem
intent.momsn spent.day spent.channel spent.bytes spent.credits arrived.origin
arrived.sequence arrived.digest arrived.at arrived.whole arrived.sos slice.origin
slice.sequence slice.count slice.position slice.slice slice.at identity.origin identity.id
identity.name identity.type identity.email identity.account inbound.number
inbound.request_id inbound.sender inbound.body inbound.received handover.hook
handover.number handover.sender handover.state handover.attempts handover.not_before
handover.reason beginning.one beginning.number event.number event.topic event.subject
tally.what tally.who tally.result tally.count tally.seconds check_in.one check_in.sequence
check_in.within check_in.at check_in.confirmed check_in.heard
command.number command.verb command.arguments command.channel command.came command.state
command.boot command.outcome command.answer command.answered agent_start.one agent_start.starts
held_kind.kind
"""
"""Tables of version 15, the first from which a program reads the data of a later one. Add the
additions of each version and remove nothing."""


def waiting(home: Path, *contents: str, sos: bool = False) -> None:
    with agent(home, {"satellite-port": str(home / "nobody")}) as kit:
        for content in contents:
            body = {"message": {"content": content}, **({"priority": 100} if sos else {})}
            assert kit.call("POST", "/api/package/async", body).status == 202
        assert kit.stop() == 0


@pytest.mark.parametrize("steps", LATER.values(), ids=LATER.keys())
def test_packages_accepted_by_later_version_wait_after_rollback(tmp_path: Path, steps: str) -> None:
    waiting(tmp_path, "before")
    state = tmp_path / "state"
    journal, later = state / "journal.sqlite3", state / "journal.sqlite3.of-later"
    with closing(sqlite3.connect(journal)) as whole:
        whole.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = tmp_path / "before.sqlite3"
    shutil.copyfile(journal, before)
    waiting(tmp_path, "on trial")
    waiting(tmp_path, "an SOS on trial", sos=True)
    with closing(sqlite3.connect(journal)) as db:
        db.executescript(f"{steps}; PRAGMA user_version={JOURNAL.version + 1};")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        numbers = db.execute("SELECT seq FROM sqlite_sequence WHERE name='package'").fetchall()
    journal.rename(later)
    replace_content(later, before)
    before.rename(journal)
    for each in ("-wal", "-shm"):
        journal.with_name(f"{journal.name}{each}").unlink(missing_ok=True)
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        status = kit.call("GET", "/api/status").body
        assert status["journal"]["losses"] == []
        assert status["sos"]["active"] == 1
        queue = kit.call("GET", "/api/queue").body
        assert queue["queued"] == 3
        assert "an SOS on trial" in str(queue)
        sent = kit.call("POST", "/api/package/async", {"message": {"content": "the next"}})
        assert sent.body["id"] == 4
        assert kit.stop() == 0
    assert not [*state.glob("*.bad")]
    with closing(sqlite3.connect(journal)) as db:
        ((last,),) = db.execute("SELECT max(sequence) FROM package").fetchall()
        assert last == numbers[0][0] + 1
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_later_journal_without_known_table_is_rejected_unchanged(tmp_path: Path) -> None:
    waiting(tmp_path, "before")
    journal = tmp_path / "state/journal.sqlite3"
    later = tmp_path / "later.sqlite3"
    with closing(sqlite3.connect(journal)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(journal, later)
    with closing(sqlite3.connect(later)) as db:
        db.executescript("DROP TABLE leg; UPDATE package SET id = 99;")
    with pytest.raises(sqlite3.DatabaseError, match="the later journal has no leg"):
        replace_content(later, journal)
    with closing(sqlite3.connect(journal)) as db:
        assert db.execute("SELECT id FROM package").fetchall() == [(1,)]
        assert db.execute("SELECT count(*) FROM sqlite_schema WHERE type='trigger'").fetchone()[0]


def shape(db: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return tables and views with their columns."""
    names = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
    return {
        (table, column)
        for (table,) in db.execute(names).fetchall()
        for (column,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,))
    }


def test_schema_keeps_all_tables_and_columns_of_earlier_versions() -> None:
    """Check the rule at the start of `schema`."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(JOURNAL.tables)
        lasting = {
            (table, column) for table, _, column in (e.partition(".") for e in SHAPE.split())
        }
        assert lasting <= shape(db)


def test_restored_older_copy_is_reported_and_ids_are_not_reused(tmp_path: Path) -> None:
    """The file `-mark` shows which numbers were assigned after the copy. They are not assigned
    again, and the copy stays in use.
    """
    waiting(tmp_path, "before", "an SOS before", sos=True)
    state = tmp_path / "state"
    journal, copy = state / "journal.sqlite3", tmp_path / "copy.sqlite3"
    with closing(sqlite3.connect(journal)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    waiting(tmp_path, *(f"since {number}" for number in range(5)))
    for each in ("-wal", "-shm"):
        journal.with_name(f"{journal.name}{each}").unlink(missing_ok=True)
    shutil.copyfile(copy, journal)
    for _ in range(2):
        with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
            (loss,) = kit.call("GET", "/api/status").body["journal"]["losses"]
            assert loss["packages"] == 5
            assert "an older copy was restored" in loss["text"]
            assert kit.call("GET", "/api/status").body["sos"]["active"] == 1
            assert kit.stop() == 0
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        sent = kit.call("POST", "/api/package/async", {"message": {"content": "the next"}})
        assert sent.body["id"] == 8
    assert not [*state.glob("*.bad")]
