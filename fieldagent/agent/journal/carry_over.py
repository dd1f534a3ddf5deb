"""Brings what a journal of a later version holds into one of this version: what was accepted, sent
and received while a later program was on trial is known as if this one had done it.

A later version has the tables and columns of this one, as tables or as views, and they mean the
same; it may have more (`schema`).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from fieldagent.store.sqlite import roll_back

LEFT = ("reserve",)
"""Room on the disk, which each file has of its own."""
_TABLES = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
_TRIGGERS = "SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger'"


def carry_over(later: Path, journal: Path) -> None:
    """Replace what `journal` holds by what `later` does, which has begun as a copy of it: all of
    it, or nothing. No program may use either. Raises sqlite3.Error."""
    address = journal.absolute().as_uri()
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as db:
        # All of it into the one file, which is going to be renamed.
        db.execute("PRAGMA journal_mode=DELETE").fetchall()
        db.execute("PRAGMA synchronous=FULL")
        db.execute("ATTACH ? AS later", (f"{later.absolute().as_uri()}?mode=rw",))
        db.execute("BEGIN IMMEDIATE")
        try:
            _replace(db)
            db.execute("COMMIT")
        except BaseException:
            roll_back(db)
            raise


def _replace(db: sqlite3.Connection) -> None:
    triggers = db.execute(_TRIGGERS).fetchall()
    # What they count and note has been counted and noted there.
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER main.{name}")
    for (table,) in db.execute(_TABLES).fetchall():
        if table not in LEFT:
            theirs = _columns(db, "later", table)
            names = ", ".join(each for each in _columns(db, "main", table) if each in theirs)
            if not names:
                raise sqlite3.DatabaseError(f"the later journal has no {table}")
            db.execute(f"DELETE FROM main.{table}")
            db.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM later.{table}")
    # The next number is not one more than the highest that is kept: rows are forgotten.
    db.execute("DELETE FROM main.sqlite_sequence")
    db.execute(
        "INSERT INTO main.sqlite_sequence SELECT name, seq FROM later.sqlite_sequence"
        f" WHERE name IN ({_TABLES})"
    )
    for _, sql in triggers:
        db.execute(sql)


def _columns(db: sqlite3.Connection, schema: str, table: str) -> list[str]:
    return [name for (name,) in db.execute(
        "SELECT name FROM pragma_table_info(?, ?)", (table, schema)
    )]  # fmt: skip
