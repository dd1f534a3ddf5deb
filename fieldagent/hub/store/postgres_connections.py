"""Connections to PostgreSQL that never wait without end, and their failures in words.

psycopg waits for the server as long as the kernel thinks that there is one: minutes where a network
swallows everything, for ever where the server hangs. Whoever waits in a thread cannot be cancelled;
but once its socket is shut down, psycopg has its answer.
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

from fieldagent.hub.store.contract import DatabaseOptions, without_nul
from fieldagent.store.group import StoreUnavailable
from fieldagent.system.text_files import first_line

Connection = psycopg.Connection[Any]
Cursor = psycopg.Cursor[Any]

DEFAULTS: dict[str, str | int] = {"connect_timeout": 2, "application_name": "fieldagent hub"}
"""What an address may say otherwise. psycopg takes two seconds at the least, for each host."""
POOLER = (
    "sessions are shared there between transactions: set `database-pooler=transaction` in the hub's"
    " settings, and an address around the pooler as `database-direct`"
)
LOOK = 2.0
"""Seconds in which a database that answers says something of itself."""
ROUNDS = 5
"""In which two connections are asked for their sessions. Directly that is some 0.1 ms each."""
DEADLINE = 30.0
"""Seconds for what a server that answers may need, under load or behind a lock."""

_PORTS = re.compile(r"[0-9,]*", re.ASCII)
_NOT_PREPARED = (
    psycopg.errors.InvalidSqlStatementName,
    psycopg.errors.DuplicatePreparedStatement,
)
"""In a session that somebody else has had."""
_UNUSABLE = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,  # a standby, after a failover
    psycopg.errors.InsufficientPrivilege,
)


class _AnyText(StrDumperUnknown):
    """PostgreSQL takes no NUL in a text, and kits and those around them say what they like: what is
    refused once comes again, with all that waits behind it."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(without_nul(obj))


class Connections:
    """Opens them, keeps those that are idle, and cuts those that wait for too long."""

    def __init__(self, database: str, options: DatabaseOptions) -> None:
        self._address, self.name = _read(database, options.password_file)
        self.pooled = options.pooled
        self._idle: list[Connection] = []
        self._used: dict[Connection, tuple[float, float]] = {}
        """Since when each is used that is, and when it must be done; time.monotonic."""
        self._ended = False
        """A thread for which nobody waits may be about to open another, or give one back."""

    @contextmanager
    def told_in_words(self) -> Iterator[None]:
        """Raise StoreUnavailable for what the server, or the way to it, does not do."""
        try:
            yield
        except _NOT_PREPARED as error:
            raise StoreUnavailable(f"{self.name} cannot be used: {POOLER}") from error
        except _UNUSABLE as error:
            text = " ".join(str(error).split())
            if "timeout expired" in text:
                raise self.silent() from error
            raise StoreUnavailable(
                f"{self.name} cannot be used: {text}; start it, or correct `database` in the hub's"
                " settings, or --database"
            ) from error

    def silent(self) -> StoreUnavailable:
        """Return the error of a server that takes connections, or asked nothing, and says
        nothing."""
        return StoreUnavailable(f"{self.name} cannot be used: it does not answer; see what it does")

    def connect(self) -> Connection:
        """Open one connection, in which each statement commits by itself unless a transaction is
        begun. After `end_all` it is closed. Raises psycopg.OperationalError."""
        # A pooler gives each transaction another connection, where nothing is prepared.
        threshold = None if self.pooled else 5
        connection = psycopg.connect(self._address, autocommit=True, prepare_threshold=threshold)
        # Every whole number is an int8. psycopg would prepare a statement again for each size. It
        # writes a list as text, and remembers the size of the first list for all later ones.
        # The dumper that is registered last is the one for single numbers.
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        connection.adapters.register_dumper(str, _AnyText)
        if self._ended:
            # The hub stopped while this thread was connecting. Nobody else would close it.
            connection.close()
        return connection

    def require_own_sessions(self) -> None:
        """Raise StoreUnavailable where the address leads to a pooler that gives each transaction
        another session, and the settings do not say so. A statement that one had prepared would be
        taken for another's there, so it is asked before anything else is. Behind a pooler two
        connections meet the same session, or one meets two; others who use it may hide that once
        or twice, and not each time."""
        if self.pooled:
            return
        with self.told_in_words(), self.connect() as one, self.connect() as other:
            met = [(_session(one), _session(other)) for _ in range(ROUNDS)]
        if len({*met}) > 1 or met[0][0] == met[0][1]:
            raise StoreUnavailable(f"{self.name} cannot be used: {POOLER}")

    @contextmanager
    def at_once(self) -> Iterator[Connection]:
        """Begin a transaction on a connection of its own."""
        with self.told_in_words(), self.connect() as connection, connection.transaction():
            yield connection

    @contextmanager
    def bounded(self, connection: Connection, seconds: float = DEADLINE) -> Iterator[None]:
        """Bound a connection's use: within, it is cut once so many seconds have passed."""
        now = time.monotonic()
        self._used[connection] = now, now + seconds
        try:
            yield
        finally:
            self._used.pop(connection, None)

    def used_for(self, seconds: float) -> list[Connection]:
        """Return those that are used, and have been for so long."""
        before = time.monotonic() - seconds
        return [each for each, (since, _) in list(self._used.items()) if since <= before]

    @contextmanager
    def borrowed(self) -> Iterator[Connection]:
        """Borrow a connection: one that was idle, or a new one."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self.connect()
        try:
            with self.bounded(connection):
                yield connection
        finally:
            if connection.broken or connection.closed:
                connection.close()
            else:
                self._idle.append(connection)
            # Asked last: they may have been ended in another thread meanwhile.
            if self._ended:
                self.forget_idle()

    def forget_idle(self) -> bool:
        """Forget those that are idle: the server may have left them, and nobody knows before they
        are used; whether there was one."""
        any_closed = False
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()
                any_closed = True
        return any_closed

    def end(self, connection: Connection) -> None:
        """End a connection. libpq does not stand to have one closed while a thread waits for it:
        that closes it."""
        if connection in self._used:
            _cut(connection)
        else:
            connection.close()

    def cut_overdue(self) -> None:
        """Cut those off whose statement takes longer than it may."""
        now = time.monotonic()
        for connection, (_, due) in list(self._used.items()):
            if due <= now:
                _cut(connection)

    def end_all(self) -> None:
        """End all connections, for good."""
        self._ended = True
        self.cut_all()

    def cut_all(self) -> None:
        """Cut all off, in use or idle."""
        for connection in list(self._used):
            _cut(connection)
        self.forget_idle()


def _session(connection: Connection) -> int:
    ((number,),) = connection.execute("SELECT pg_backend_pid()").fetchall()
    return int(number)


def _cut(connection: Connection) -> None:
    with (
        suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as same,
    ):
        same.shutdown(socket.SHUT_RDWR)


def _password(path: Path) -> str:
    """Its first line. Raises StoreUnavailable."""
    try:
        return first_line(path)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StoreUnavailable(f"database-password-file {path} cannot be read: {why}") from None


def _read(database: str, password_file: Path | None) -> tuple[str, str]:
    """The address for libpq, and what people are told of it. Raises StoreUnavailable, and never
    says what stands there: it may hold the password."""
    try:
        parts = conninfo_to_dict(database)
    except psycopg.Error:  # libpq quotes what it could not read
        parts = {}
    # A password with @, / or : unescaped is read as part of a host, a port or a name.
    shown = [str(parts.get(part, "")) for part in ("host", "port", "dbname")]
    if not parts or any("@" in part for part in shown) or not _PORTS.fullmatch(shown[1]):
        raise StoreUnavailable(
            "the address of the database cannot be read: it must be"
            " postgresql://USER:PASSWORD@HOST:PORT/NAME, with %-escapes for what is none of"
            " A-Z a-z 0-9 - . _ ~ in each part"
        ) from None
    if password_file is not None:
        parts["password"] = _password(password_file)
    host, name = parts.get("host") or "localhost", parts.get("dbname") or ""
    return make_conninfo("", **{**DEFAULTS, **parts}), f"PostgreSQL at {host}/{name}"
