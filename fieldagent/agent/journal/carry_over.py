"""Copies the content of a later version's journal into a journal of this version. After the trial
of a later program, this program then knows all Packages and messages of the trial.

A later version has all tables and columns of this version, as tables or as views, with the same
meaning. It may also have additional tables and columns (`schema`).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from fieldagent.store.sqlite import roll_back

UNCOPIED_TABLES = ("reserve",)
"""Tables that are not copied: each file has its own reserve of space."""
_TABLES = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
_TRIGGERS = "SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger'"


def replace_content(copy_path: Path, journal: Path) -> None:
    """Replace the content of `journal` by the content of `copy_path`, a file that started as a copy
    of `journal`. Either everything or nothing is replaced. No other program may use the files
    during the call. Raises sqlite3.Error.
    """
    address = journal.absolute().as_uri()
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as db:
        # Without a write-ahead log all content is in this one file.
        db.execute("PRAGMA journal_mode=DELETE").fetchall()
        db.execute("PRAGMA synchronous=FULL")
        db.execute("ATTACH ? AS later", (f"{copy_path.absolute().as_uri()}?mode=rw",))
        db.execute("BEGIN IMMEDIATE")
        try:
            _replace(db)
            db.execute("COMMIT")
        except BaseException:
            roll_back(db)
            raise


def _replace(db: sqlite3.Connection) -> None:
    triggers = db.execute(_TRIGGERS).fetchall()
    # Drop the triggers: the copied content already includes the counts and events that they would
    # add.
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER main.{name}")
    for (table,) in db.execute(_TABLES).fetchall():
        if table not in UNCOPIED_TABLES:
            their_columns = _list_columns(db, "later", table)
            names = ", ".join(
                each for each in _list_columns(db, "main", table) if each in their_columns
            )
            if not names:
                raise sqlite3.DatabaseError(f"the later journal has no {table}")
            db.execute(f"DELETE FROM main.{table}")
            db.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM later.{table}")
    # Copy the counters too. The next number of a table can be higher than its highest row, because
    # rows are deleted.
    db.execute("DELETE FROM main.sqlite_sequence")
    db.execute(
        "INSERT INTO main.sqlite_sequence SELECT name, seq FROM later.sqlite_sequence"
        f" WHERE name IN ({_TABLES})"
    )
    for _, sql in triggers:
        db.execute(sql)


def _list_columns(db: sqlite3.Connection, schema: str, table: str) -> list[str]:
    return [name for (name,) in db.execute(
        "SELECT name FROM pragma_table_info(?, ?)", (table, schema)
    )]  # fmt: skip
