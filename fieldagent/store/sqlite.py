"""Opens an SQLite file so that commits survive a power cut, and writes to it in groups.

The file uses WAL mode with `synchronous=FULL`. In a test of power cuts, NORMAL lost each of 200
acknowledged commits, and FULL lost none (docs/explain/reliability.md).

The version of a file's tables is stored twice in the file's header, so that a damaged version is
not mistaken for a later version.

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

import errno
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from fieldagent.store.group import Order, StoreFailed, StoreFull, carry_out
from fieldagent.store.schema import Schema
from fieldagent.system.folder import make_private_file, make_private_folder
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence

log = logging.getLogger(__name__)

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


COPIED_PAGES = 1_000
"""Number of pages that are copied between two reports of progress."""
CHECK = "PRAGMA quick_check(1)"
_DISK_ERROR_CODES = (
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB),
    # Linux makes a file system with errors read-only.
    sqlite3.SQLITE_READONLY,
)
LOCK_WAIT_MAX_S = 5.0
"""Longest time in seconds that a writer waits for another program's transaction, which usually
takes milliseconds."""


def transact(writer: sqlite3.Connection, orders: Sequence[Order[sqlite3.Connection]]) -> None:
    """Run all orders in one transaction. Raises StoreFailed, StoreFull, or the error that an order
    has raised.
    """
    try:
        writer.execute("BEGIN IMMEDIATE")
        carry_out(orders, writer)
        writer.execute("COMMIT")
    except BaseException as error:
        roll_back(writer)
        raise _replace_texts(error) from error


def roll_back(writer: sqlite3.Connection) -> None:
    """Roll back the transaction. If the disk is full or fails, SQLite may already have rolled it
    back.
    """
    if writer.in_transaction:
        writer.execute("ROLLBACK")


def is_fatal(error: BaseException) -> bool:
    """Return True for an error of the disk itself, after which SQLite's view of the file is not
    reliable.
    """
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in _DISK_ERROR_CODES


def _replace_texts(error: BaseException) -> BaseException:
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE:
        # This error is not fatal: there is no space for the log's index, and nothing has been
        # written yet.
        return StoreFull("the disk is full")
    if is_fatal(error):
        return StoreFailed(sentence("the disk cannot store data: {error}", error=error))
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        return StoreFull("the disk is full")
    return error


def connect(
    path: Path, schema: Schema, *, is_checked: bool = False, is_marked: bool = False
) -> sqlite3.Connection:
    """Open the file for writing, and upgrade it to `schema`. A missing file is created for its
    owner only, and SQLite gives the same mode to the files beside it. `is_checked` is True if the
    file was already checked. `is_marked` is True if the file stores its version
    twice. Then a damaged version is repaired.

    Raises sqlite3.DatabaseError for a damaged file or a later version, or OSError.
    """
    make_private_folder(path.parent)
    make_private_file(path)
    _close_alike(path)
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=LOCK_WAIT_MAX_S
    )
    try:
        connection.execute("PRAGMA locking_mode=NORMAL")
        _begin_log(connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA cache_size=-512")
        if not is_checked and (damage := connection.execute(CHECK).fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(damage)
        if is_marked:
            _upgrade_marked(connection, schema, path)
        elif _read_version(connection) != schema.version:
            _migrate(connection, schema)
        # A file may be readable but not writable. Detect this now, not at the first commit.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA user_version={schema.version}")
        connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection


def _close_alike(path: Path) -> None:
    """Set the file's permissions also on its write-ahead log and the log's index, as SQLite does
    for new files.
    """
    mode = path.stat().st_mode & 0o777
    for suffix in ("-wal", "-shm"):
        with suppress(OSError):
            path.with_name(path.name + suffix).chmod(mode)


def close_keeping_log(writer: sqlite3.Connection, reader: sqlite3.Connection) -> None:
    """Close both connections. Copy the data of the log to the file, but keep the log and its index.
    If the disk becomes full, there would be no space to create them again (SQLITE_IOERR_SHMSIZE).

    SQLite keeps them because the last connection to close is read-only. Raises no error of the
    disk.
    """
    with suppress(sqlite3.Error):
        reader.execute("SELECT 1 FROM sqlite_schema").fetchone()
    with suppress(sqlite3.Error):
        writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    writer.close()
    reader.close()


def _begin_log(connection: sqlite3.Connection) -> None:
    """Turn on WAL mode. Try repeatedly, because SQLite does not wait if another program starts at
    the same time.
    """
    deadline = time.monotonic() + LOCK_WAIT_MAX_S
    while True:
        try:
            ((mode,),) = connection.execute("PRAGMA journal_mode=WAL").fetchall()
            if mode != "wal":
                raise OSError(errno.EIO, "SQLite cannot begin its log")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _read_version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _migrate(connection: sqlite3.Connection, schema: Schema) -> None:
    """Run the upgrade steps of `schema`. Only one program at a time does this, and a program that
    had to wait finds the upgrade already done.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _split_statements(schema.get_upgrade_steps(_read_version(connection))):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={schema.version}")
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def _upgrade_marked(connection: sqlite3.Connection, schema: Schema, path: Path) -> None:
    """Upgrade as `_migrate` does, for a file that stores its version twice. If the tables do not
    confirm the version, change nothing.
    """
    head = read_version_header(connection, schema.version)
    if head == VersionHeader(
        schema.version, schema.version, is_contradictory=False, is_marked=True
    ):
        return
    schema.judge(head.version)
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another program may have upgraded the file meanwhile.
        head = read_version_header(connection, schema.version)
        if head.version != schema.version:
            _run_upgrade_steps(connection, schema, head)
        if head.is_contradictory and not has_the_tables(connection, schema):
            raise _find_contradiction(head)
        write_version_header(connection, schema.version)
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise
    if head.is_contradictory:
        log.warning(
            "the head of %s was damaged and is repaired: version %d in the head, version %d"
            " in its tables",
            *(path, head.user_version, head.version),
        )


def _run_upgrade_steps(connection: sqlite3.Connection, schema: Schema, head: VersionHeader) -> None:
    try:
        for statement in _split_statements(schema.get_upgrade_steps(head.version)):
            connection.execute(statement)
    except sqlite3.OperationalError as error:
        if not head.is_contradictory or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_ERROR:
            raise
        raise _find_contradiction(head) from error


def _find_contradiction(head: VersionHeader) -> sqlite3.DatabaseError:
    return sqlite3.DatabaseError(
        f"its head has version {head.user_version}, but its tables are not of version"
        f" {head.version}"
    )


def _split_statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def copy_whole(
    source: sqlite3.Connection, target: Path, report: Callable[[int, int], None] | None = None
) -> None:
    """Copy a consistent state of the database to a file for its owner only, and check the copy. An
    existing file is replaced. `report` gets the number of copied pages, and the number of all
    pages. Raises OSError or sqlite3.Error if the copy fails.
    """
    target.unlink(missing_ok=True)
    make_private_file(target)
    with closing(sqlite3.connect(target)) as copy:
        # In a transaction, all steps read the same state, whatever other programs write meanwhile.
        source.execute("BEGIN")
        try:
            source.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            source.backup(
                copy,
                pages=COPIED_PAGES,
                progress=report and (lambda _, remaining, total: report(total - remaining, total)),
            )
        finally:
            source.execute("ROLLBACK")
        if (damage := copy.execute(CHECK).fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(damage)


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a database file for reading, in any thread. Raises sqlite3.OperationalError if the file
    is missing.
    """
    file_address = f"file:{_quote(path)}?mode=ro"
    connection = sqlite3.connect(file_address, uri=True, check_same_thread=False)
    # Read damaged text without an error, so that the damage can be found.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    return connection


def _quote(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
