"""Opens an SQLite file so that what is committed survives a power cut, and writes to it in groups.

WAL mode with `synchronous=FULL`: NORMAL lost every one of 200 acknowledged commits in a power cut,
FULL none (docs/explain/reliability.md).
"""

from __future__ import annotations

import errno
import logging
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from fieldagent.store.group import Order, StoreFailed, StoreFull, carry_out
from fieldagent.store.schema import Schema
from fieldagent.store.version_mark import Head, has_the_tables, read_head, write_head
from fieldagent.system.private import make_private_file, make_private_folder
from fieldagent.system.sentence import sentence

log = logging.getLogger(__name__)

CHECK = "PRAGMA quick_check(1)"
_OF_THE_DISK = (
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB),
    # A file system that has met errors is mounted for reading only from then on.
    sqlite3.SQLITE_READONLY,
)
LOCKED = 5.0
"""Seconds that a writer waits for another program's: each takes milliseconds."""


def transact(writer: sqlite3.Connection, orders: Sequence[Order[sqlite3.Connection]]) -> None:
    """Carry out all in one transaction. Raises StoreFailed, StoreFull, or what one of them
    raises."""
    try:
        writer.execute("BEGIN IMMEDIATE")
        carry_out(orders, writer)
        writer.execute("COMMIT")
    except BaseException as error:
        roll_back(writer)
        raise _in_our_words(error) from error


def roll_back(writer: sqlite3.Connection) -> None:
    """Roll back what SQLite itself has not, as it does where the disk is full or fails."""
    if writer.in_transaction:
        writer.execute("ROLLBACK")


def is_fatal(error: BaseException) -> bool:
    """Return whether it is an error of the disk itself, after which SQLite's own view of the file
    is not to be trusted."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in _OF_THE_DISK


def _in_our_words(error: BaseException) -> BaseException:
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE:
        # Nothing was written yet: there is no room for the log's index.
        return StoreFull("the disk is full")
    if is_fatal(error):
        return StoreFailed(sentence("the disk does not take what is written: {error}", error=error))
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        return StoreFull("the disk is full")
    return error


def connect(
    path: Path, schema: Schema, *, checked: bool = False, marked: bool = False
) -> sqlite3.Connection:
    """Open the file for writing, brought to `schema`; where there is none, it is made, its owner's
    alone. SQLite gives the files beside it the same mode. One that was `checked` is not again. With
    `marked` its version stands in it twice (`version_mark`), and a damaged one is mended.

    Raises sqlite3.DatabaseError for a damaged file, or one of a later version; OSError.
    """
    make_private_folder(path.parent)
    make_private_file(path)
    _close_alike(path)
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=LOCKED
    )
    try:
        connection.execute("PRAGMA locking_mode=NORMAL")
        _begin_log(connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA cache_size=-512")
        if not checked and (damage := connection.execute(CHECK).fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(damage)
        if marked:
            _bring_up_marked(connection, schema, path)
        elif _version(connection) != schema.version:
            _migrate(connection, schema)
        # One that can be read and not written is known now, and not at the first commit.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA user_version={schema.version}")
        connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection


def _close_alike(path: Path) -> None:
    """Give the log and index that are kept beside the file its mode, as new ones have."""
    mode = path.stat().st_mode & 0o777
    for suffix in ("-wal", "-shm"):
        with suppress(OSError):
            path.with_name(path.name + suffix).chmod(mode)


def close_keeping_log(writer: sqlite3.Connection, reader: sqlite3.Connection) -> None:
    """Close both. Log and index stay beside the file, which has all that is in them: a disk that is
    filled meanwhile has no room to make them anew (SQLITE_IOERR_SHMSIZE).

    They stay because who closes last may only read. Raises nothing of the disk's.
    """
    with suppress(sqlite3.Error):
        reader.execute("SELECT 1 FROM sqlite_schema").fetchone()
    with suppress(sqlite3.Error):
        writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    writer.close()
    reader.close()


def _begin_log(connection: sqlite3.Connection) -> None:
    """SQLite waits for others everywhere but here, where two may begin at one moment."""
    deadline = time.monotonic() + LOCKED
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


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _migrate(connection: sqlite3.Connection, schema: Schema) -> None:
    """One program at a time: who waited for another finds nothing left to do."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _statements(schema.steps_from(_version(connection))):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={schema.version}")
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def _bring_up_marked(connection: sqlite3.Connection, schema: Schema, path: Path) -> None:
    """As `_migrate`, where the version stands in the file twice. Nothing is changed where the
    tables do not prove it."""
    head = read_head(connection, schema.version)
    if head == Head(schema.version, schema.version, contradicts=False, is_marked=True):
        return
    schema.judge(head.version)
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another program may have been here meanwhile.
        head = read_head(connection, schema.version)
        if head.version != schema.version:
            _take_steps(connection, schema, head)
        if head.contradicts and not has_the_tables(connection, schema):
            raise _contradiction(head)
        write_head(connection, schema.version)
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise
    if head.contradicts:
        log.warning(
            "the head of %s was damaged and is mended: it said version %d, its tables are of"
            " version %d",
            *(path, head.told, head.version),
        )


def _take_steps(connection: sqlite3.Connection, schema: Schema, head: Head) -> None:
    try:
        for statement in _statements(schema.steps_from(head.version)):
            connection.execute(statement)
    except sqlite3.OperationalError as error:
        if not head.contradicts or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_ERROR:
            raise
        raise _contradiction(head) from error


def _contradiction(head: Head) -> sqlite3.DatabaseError:
    return sqlite3.DatabaseError(
        f"its head says version {head.told}, and its tables are not those of version {head.version}"
    )


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def copy_whole(source: sqlite3.Connection, new: Path) -> None:
    """Copy it as of one moment to a file that is its owner's alone, looked through and on its disk;
    what was there is gone. Raises OSError, sqlite3.Error."""
    new.unlink(missing_ok=True)
    make_private_file(new)
    with closing(sqlite3.connect(new)) as copy:
        source.backup(copy)
        if (damage := copy.execute(CHECK).fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(damage)


def reader(path: Path) -> sqlite3.Connection:
    """Open a file to read alone, by any thread. Raises sqlite3.OperationalError where it is not
    there."""
    place = f"file:{_quoted(path)}?mode=ro"
    connection = sqlite3.connect(place, uri=True, check_same_thread=False)
    # A text that is damaged can be read, and so be found to be.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    return connection


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
