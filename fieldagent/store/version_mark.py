"""The version of a file's tables. It is stored twice in the file's header, so that a damaged
version is not mistaken for a later version.

SQLite keeps `user_version` at bytes 60 to 63 and `application_id` at 68 to 71
(https://sqlite.org/fileformat2.html#the_database_header). `application_id` contains the version and
its complement, so that a changed bit in either is detected. Both values are written in one
transaction.

| application_id | user_version | the version is |
|---|---|---|
| valid, and the same | | that |
| valid, and another | damaged | the one in application_id, if the tables confirm it |
| 0 | 0 | the file is new |
| 0 | any other | ours, if the tables confirm it |
| damaged | | the one in user_version |
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from fieldagent.store.schema import Schema
from fieldagent.system.lazy_named_tuple import NamedTuple

_BITS = 0x7FFF
"""Mask of a version below 32 768. With this mask `application_id`, a signed number, stays
positive."""


class VersionHeader(NamedTuple):
    """Versions of the tables according to the header of a database file."""

    version: int
    """Version of the tables, which follows from the two values in the header."""
    user_version: int
    """Value of `user_version`."""
    is_contradictory: bool
    """True if the two values differ, so that the tables must confirm the version."""
    is_marked: bool
    """True if `application_id` contains a version."""


def compute_application_id(version: int) -> int:
    """Return the number for the header field `application_id`: the version, and the complement of
    its bits.
    """
    return (version & _BITS) << 16 | (~version & 0xFFFF)


def read_version_header(connection: sqlite3.Connection, program_version: int) -> VersionHeader:
    """Return the version header of a database file. A file without a version mark gets
    `program_version`.
    """
    ((number,),) = connection.execute("PRAGMA user_version")
    ((mark,),) = connection.execute("PRAGMA application_id")
    version = mark >> 16
    if version > 0 and mark == compute_application_id(version):
        return VersionHeader(version, number, number != version, True)
    if mark == 0 and number:
        return VersionHeader(program_version, number, True, False)
    return VersionHeader(number, number, False, False)


def write_version_header(connection: sqlite3.Connection, version: int) -> None:
    """Write the version and the mark into the file's header, within a transaction."""
    connection.execute(f"PRAGMA user_version={version}")
    connection.execute(f"PRAGMA application_id={compute_application_id(version)}")


def has_the_tables(connection: sqlite3.Connection, schema: Schema) -> bool:
    """Return True if the database has all tables and columns of the schema's version."""
    with closing(sqlite3.connect(":memory:")) as empty_database:
        empty_database.executescript(schema.tables)
        return _read_columns(empty_database) <= _read_columns(connection)


def _read_columns(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    return set(
        connection.execute(
            "SELECT t.name, c.name, c.type FROM sqlite_schema AS t"
            " JOIN pragma_table_info(t.name) AS c WHERE t.type = 'table'"
        ).fetchall()
    )
