"""Connections to PostgreSQL that never wait without a limit, and readable texts for their failures.

psycopg waits for the server as long as the kernel considers it reachable. The wait takes minutes if
the network drops all packets, and does not end if the server hangs. A thread that waits cannot be
cancelled, but psycopg returns an error when the socket is shut down.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg.types.string import StrDumperUnknown

from fieldagent.hub.store.contract import DatabaseOptions, replace_nul
from fieldagent.store.group import StoreUnavailable
from fieldagent.system.text_files import read_first_line

Connection = psycopg.Connection[Any]
Cursor = psycopg.Cursor[Any]

DEFAULTS: dict[str, str | int] = {"connect_timeout": 2, "application_name": "fieldagent hub"}
"""Connection parameters that the database address can override. psycopg needs at least two seconds
for each host."""
POOLER = (
    "sessions are shared there between transactions: set `database-pooler=transaction` in the hub's"
    " settings, and an address around the pooler as `database-direct`"
)
QUERY_TIMEOUT_S = 2.0
"""Seconds within which a working database responds to a query about itself."""
POOLER_CHECK_ROUNDS = 5
"""Number of rounds of the check for a pooler. Each round queries the session of two connections,
which takes about 0.1 ms each if there is no pooler."""
DEADLINE_S = 30.0
"""Seconds within which a server under load or behind a lock must respond."""

_PORTS = re.compile(r"[0-9,]*", re.ASCII)
_NOT_PREPARED = (
    psycopg.errors.InvalidSqlStatementName,
    psycopg.errors.DuplicatePreparedStatement,
)
"""Errors that occur if another client has used the same session before."""
_UNUSABLE = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,  # From a standby server, after a failover.
    psycopg.errors.InsufficientPrivilege,
)


class _TextDumper(StrDumperUnknown):
    """Replaces NUL in texts, because PostgreSQL rejects NUL and kits can send any text. Otherwise,
    a rejected item would arrive again and block all items after it.
    """

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(replace_nul(obj))


class Connections:
    """Opens connections, stores idle connections, and cuts off connections that wait too long."""

    def __init__(self, database: str, options: DatabaseOptions) -> None:
        self._address, self.name = _read(database, options.password_file)
        self.pooled = options.pooled
        self._idle: list[Connection] = []
        self._in_use: dict[Connection, tuple[float, float]] = {}
        """Times of each connection in use: when its use began, and when its use must end. Both are
        in time.monotonic."""
        self._has_ended = False
        """True after `end_all`. A thread that the hub has abandoned may still open or return a
        connection then."""

    @contextmanager
    def convert_errors(self) -> Iterator[None]:
        """Raise StoreUnavailable with a readable text if the server or the network fails within the
        block.
        """
        try:
            yield
        except _NOT_PREPARED as error:
            raise StoreUnavailable(f"{self.name} cannot be used: {POOLER}") from error
        except _UNUSABLE as error:
            text = " ".join(str(error).split())
            if "timeout expired" in text:
                raise self.make_silent() from error
            raise StoreUnavailable(
                f"{self.name} cannot be used: {text}; start it, or correct `database` in the hub's"
                " settings, or --database"
            ) from error

    def make_silent(self) -> StoreUnavailable:
        """Return the error for a server that accepts connections but does not respond."""
        return StoreUnavailable(
            f"{self.name} cannot be used, because it does not answer; check its activity"
        )

    def connect(self) -> Connection:
        """Open one connection. Outside a transaction, each statement is committed separately. After
        `end_all`, the returned connection is closed. Raises psycopg.OperationalError.
        """
        # A pooler gives each transaction another session, which does not contain prepared
        # statements.
        threshold = None if self.pooled else 5
        connection = psycopg.connect(self._address, autocommit=True, prepare_threshold=threshold)
        # Send every whole number as int8, because psycopg would prepare a statement again for each
        # size. psycopg writes a list as text and uses the size of the first list for all later
        # lists. Single numbers use the dumper that is registered last.
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        connection.adapters.register_dumper(str, _TextDumper)
        if self._has_ended:
            # The hub stopped while this thread was connecting. Only this thread can close the
            # connection.
            connection.close()
        return connection

    def require_own_sessions(self) -> None:
        """Raise StoreUnavailable if the database address leads to a transaction pooler that the
        settings do not mention.

        Through such a pooler, a client could run a statement that another client has prepared, so
        this check runs before everything else. Behind a pooler, two connections may reach the same
        session, or one connection may reach two. Other clients can hide this once or twice, but not
        in every round.
        """
        if self.pooled:
            return
        with self.convert_errors(), self.connect() as first, self.connect() as other:
            session_pairs = [
                (_read_session(first), _read_session(other)) for _ in range(POOLER_CHECK_ROUNDS)
            ]
        if len({*session_pairs}) > 1 or session_pairs[0][0] == session_pairs[0][1]:
            raise StoreUnavailable(f"{self.name} cannot be used: {POOLER}")

    @contextmanager
    def begin_at_once(self) -> Iterator[Connection]:
        """Begin a transaction on a separate connection."""
        with self.convert_errors(), self.connect() as connection, connection.transaction():
            yield connection

    @contextmanager
    def limit_use(self, connection: Connection, seconds: float = DEADLINE_S) -> Iterator[None]:
        """Limit the time for which a connection is used. After `seconds`, `cut_overdue` cuts it
        off.
        """
        now = time.monotonic()
        self._in_use[connection] = now, now + seconds
        try:
            yield
        finally:
            self._in_use.pop(connection, None)

    def list_used_for(self, seconds: float) -> list[Connection]:
        """Return the connections that have been in use for at least `seconds`."""
        before = time.monotonic() - seconds
        return [each for each, (since, _) in list(self._in_use.items()) if since <= before]

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        """Yield an idle connection, or a new connection if none is idle."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self.connect()
        try:
            with self.limit_use(connection):
                yield connection
        finally:
            if connection.broken or connection.closed:
                connection.close()
            else:
                self._idle.append(connection)
            # Check this last, because another thread may have called `end_all` meanwhile.
            if self._has_ended:
                self.forget_idle()

    def forget_idle(self) -> bool:
        """Close all idle connections, because the server may have dropped them. Return True if
        there was an idle connection.
        """
        any_closed = False
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()
                any_closed = True
        return any_closed

    def end(self, connection: Connection) -> None:
        """End a connection. If a thread waits for it, only cut it off, because libpq cannot close
        it safely then. The thread closes it later.
        """
        if connection in self._in_use:
            _cut(connection)
        else:
            connection.close()

    def cut_overdue(self) -> None:
        """Cut off the connections whose time limit has passed."""
        now = time.monotonic()
        for connection, (_, due) in list(self._in_use.items()):
            if due <= now:
                _cut(connection)

    def end_all(self) -> None:
        """Cut off all connections, and open no new ones."""
        self._has_ended = True
        self.cut_all()

    def cut_all(self) -> None:
        """Cut off all connections, in use or idle."""
        for connection in list(self._in_use):
            _cut(connection)
        self.forget_idle()


def _read_session(connection: Connection) -> int:
    ((number,),) = connection.execute("SELECT pg_backend_pid()").fetchall()
    return int(number)


def _cut(connection: Connection) -> None:
    with (
        suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as same_socket,
    ):
        same_socket.shutdown(socket.SHUT_RDWR)


def _read_password(path: Path) -> str:
    """Return the first line of the password file. Raises StoreUnavailable if the file cannot be
    read.
    """
    try:
        return read_first_line(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise StoreUnavailable(f"database-password-file {path} cannot be read: {reason}") from None


def _read(database: str, password_file: Path | None) -> tuple[str, str]:
    """Return the database address in the form for libpq, and the name of the database for people.
    Raises StoreUnavailable. Its text never contains the address, because the address may contain
    the password.
    """
    try:
        parts = conninfo_to_dict(database)
    except psycopg.Error:
        # Do not show this error, because its text contains the address and perhaps the password.
        parts = {}
    # If @, / or : in a password is not escaped, a part of the password looks like a host, a port or
    # a name.
    shown_parts = [str(parts.get(part, "")) for part in ("host", "port", "dbname")]
    if (
        not parts
        or any("@" in part for part in shown_parts)
        or not _PORTS.fullmatch(shown_parts[1])
    ):
        raise StoreUnavailable(
            "the address of the database cannot be read: it must be"
            " postgresql://USER:PASSWORD@HOST:PORT/NAME, with %-escapes for other characters than"
            " A-Z a-z 0-9 - . _ ~ in each part"
        ) from None
    if password_file is not None:
        parts["password"] = _read_password(password_file)
    host, name = parts.get("host") or "localhost", parts.get("dbname") or ""
    return make_conninfo("", **{**DEFAULTS, **parts}), f"PostgreSQL at {host}/{name}"
