"""The hub's store in PostgreSQL, which many hub processes can share.

The store runs psycopg 3 in worker threads, because psycopg's asynchronous interface supports only
asyncio. One connection writes, in transactions that callers share. A few connections read. One
connection listens for announcements, and shows the store whether the database responds.

If the database does not respond or accepts no write, each call fails immediately instead of
waiting. The database is considered available again after it has accepted a write.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeVar

import psycopg
import trio

from fieldagent.hub.store.contract import (
    ANY_WRITE_TOPIC,
    DatabaseOptions,
    Db,
    Topics,
    write_proof,
)
from fieldagent.hub.store.postgres_connections import Connection, Connections, Cursor
from fieldagent.hub.store.postgres_proof import WriteProof, make_worker_number
from fieldagent.hub.store.postgres_schema import migrate, require
from fieldagent.hub.store.postgres_stuck import (
    BlockingCause,
    end_sessions,
    find_reason,
    is_still_blocked,
)
from fieldagent.hub.store.shared_reads import SharedReads
from fieldagent.store.group import (
    GroupCommit,
    Order,
    StoreFailed,
    StoreFull,
    StoreUnavailable,
    carry_out,
)
from fieldagent.system.price import run_billed

log = logging.getLogger(__name__)

T = TypeVar("T")
A = TypeVar("A")

READERS_MAX = 4
"""Largest number of connections that read at the same time."""
POLL_INTERVAL_S = 3.0
"""Seconds of silence after which the store pings the listening connection."""
PING_TIMEOUT_S = 2.0
"""Seconds within which a working database responds to a ping."""
RETRY_AFTER_S = 0.5
"""Seconds between two attempts to reach the database."""
TRANSACTION_TIMEOUT_S = 5.0
"""Seconds after which the store aborts a transaction that writes or waits for a lock."""
PAYLOAD_MAX_BYTES = 7_900
"""Largest number of bytes of a notification. PostgreSQL's limit is 8000."""
PAYLOADS_MAX = 8
"""Largest number of notifications of one commit. This is sufficient for items to 5,000 kits."""
NOTIFY = "SELECT pg_notify(?, payload) FROM unnest(?::text[]) AS payload"
ALL_TOPICS = "*"
CHANNEL = "fieldagent"
WORKERS = 0x776F726B
"""Class of the advisory locks that show which hub processes are alive. Each process holds a lock
with its own number. If a process dies, PostgreSQL releases its lock, because the connection
ends."""
LIVING_WORKERS = (
    "SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted"
    f" AND classid = {WORKERS} AND database ="
    " (SELECT oid FROM pg_database WHERE datname = current_database())"
)
ATTEMPTS_MAX = 5
"""Largest number of attempts for a transaction that conflicts with another transaction."""

_CONFLICTS = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)


class _PostgresDb:
    takes_lists = True
    living_workers = LIVING_WORKERS

    def __init__(
        self, connection: Connection, worker: int, whole: _PostgresDb | None = None
    ) -> None:
        """Create the view that one caller has of a transaction. If several callers share the
        transaction, `whole` is the `_PostgresDb` of the whole transaction.
        """
        self._connection = connection
        self._cursor: Cursor = whole._cursor if whole else connection.cursor()
        self.worker = worker
        self._outer = whole or self
        self.topics: set[str] = set()
        self.wrote = False
        """True if a caller has written in the transaction."""
        self._writes: dict[str, tuple[Any, ...]] = {}
        """Statements of the transaction that have not been sent to the server yet, with their
        parameters."""

    def for_update(self, of: str = "") -> str:
        return f" FOR UPDATE OF {of}" if of else " FOR UPDATE"

    def skip_locked(self, of: str = "") -> str:
        return f"{self.for_update(of)} SKIP LOCKED"

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        self._outer.flush()
        cursor = self._cursor.execute(_mark_parameters(sql), parameters or None)
        if cursor.rowcount > 0 and not (cursor.statusmessage or "").startswith("SELECT"):
            self._outer.wrote = True
        # Use `pgresult`, because `description` would build the data of all columns each time it is
        # read.
        return cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []

    def write(self, sql: str, *parameters: Any) -> None:
        if sql in self._outer._writes:
            # Send the earlier parameters first, because there is no order of rows within one
            # statement.
            self._outer.flush()
        self._outer._writes[sql] = parameters

    def flush(self, payloads: Sequence[str] = ()) -> None:
        """Send the pending writes to the server, and a notification for each payload. PostgreSQL
        executes the statements of a WITH even if their result is not read (PostgreSQL manual,
        7.8.4).
        """
        writes, self._writes = self._writes, {}
        statements = [*writes, *([NOTIFY] if payloads else [])]
        if not statements:
            return
        *ahead, sql = statements
        if ahead:
            parts = ", ".join(f"write_{index} AS ({write})" for index, write in enumerate(ahead))
            sql = f"WITH {parts} {sql}"
        parameters = [value for write_values in writes.values() for value in write_values]
        notices = [CHANNEL, [*payloads]] if payloads else []
        self._cursor.execute(_mark_parameters(sql), [*parameters, *notices] or None)
        self.wrote = self.wrote or bool(writes)

    def announce(self, topic: str) -> None:
        self.topics.add(topic)

    def make_caller_view(self) -> _PostgresDb:
        """Return one caller's view of a shared transaction. The view contains the announcements of
        this caller.
        """
        return _PostgresDb(self._connection, self.worker, self._outer)


def _list_payloads(topics: Sequence[str]) -> list[str]:
    """Return the payloads of the notifications that contain these topics."""
    payloads: list[str] = []
    for topic in topics:
        longer = f"{payloads[-1]}\n{topic}" if payloads else topic
        if payloads and len(longer.encode()) <= PAYLOAD_MAX_BYTES:
            payloads[-1] = longer
        else:
            payloads.append(topic)
    return payloads if len(payloads) <= PAYLOADS_MAX else [ALL_TOPICS]


@lru_cache(maxsize=512)
def _mark_parameters(sql: str) -> bytes:
    """Replace each `?` in the SQL by psycopg's `%s`. No statement contains a question mark that is
    not a parameter.
    """
    return sql.replace("?", "%s").encode()


class PostgresStore:
    """Implements `Store` with a PostgreSQL database."""

    shared = True

    def __init__(self, database: str, options: DatabaseOptions) -> None:
        self._connections = Connections(database, options)
        self._listening_connections = self._connections
        if options.direct is not None:
            self._listening_connections = Connections(
                options.direct, replace(options, pooled=False)
            )
        self._listens = not options.pooled or options.direct is not None
        self._writer: Connection | None = None
        self._outage: StoreUnavailable | None = None
        """Reason why the database cannot be used now; None while the database responds."""
        self._gone_since = 0.0
        self._stuck = BlockingCause("")
        """Cause that blocked the last write."""
        self._listening_scope = trio.CancelScope()
        """Scope of the listening connection. It is cancelled when the store must check the database
        again."""
        # Through a pooler, a lock does not stay with this process. So the number is 0, and other
        # processes cannot see whether this process is alive.
        self._proof = WriteProof(
            self._connections.name, make_worker_number() if self._listens else 0
        )
        self._threads = trio.CapacityLimiter(READERS_MAX)
        self._connections.require_own_sessions()
        with self._connections.begin_at_once() as connection:
            (migrate if options.upgrade else require)(connection)
        self._group: GroupCommit[_PostgresDb] = GroupCommit(self._transact)
        self._shared: dict[Callable[..., Any], Callable[..., Any]] = {}
        """Operation that a group of callers shares, by the operation of each caller."""
        self._readers = SharedReads(self.read)
        self._topics = Topics()

    def _raise_if_gone(self) -> None:
        if (gone_error := self._outage) is not None:
            raise StoreUnavailable(str(gone_error))

    def _transact(self, orders: Sequence[Order[_PostgresDb]]) -> None:
        self._raise_if_gone()
        with self._connections.convert_errors():
            try:
                self._try_on(orders)
            except psycopg.errors.DiskFull as error:
                raise self._proof.record_full_disk(error) from error
            except psycopg.Error:
                # If a connection breaks, the result of its work is unknown, so each caller gets the
                # error.
                self._drop_if_broken()
                raise

    def _try_on(self, orders: Sequence[Order[_PostgresDb]]) -> None:
        for _ in range(ATTEMPTS_MAX - 1):
            with suppress(*_CONFLICTS):
                self._try(orders)
                return
        self._try(orders)

    def _try(self, orders: Sequence[Order[_PostgresDb]]) -> None:
        if self._writer is None:
            self._writer = self._connections.connect()
        db = _PostgresDb(self._writer, self._proof.worker)
        with self._connections.limit_use(self._writer), self._writer.transaction():
            carry_out(orders, db)
            db.flush(_list_payloads(sorted(db.topics)))
        if db.wrote:
            self._proof.record_write()

    async def prove(self) -> None:
        self._raise_if_gone()
        if self._proof.is_needed():
            await run_billed(self._prove, self._threads)

    def _prove(self) -> None:
        """Make a test write in a thread, on a separate connection. Raises StoreUnavailable,
        StoreFull.
        """
        worker, full = self._proof.worker, self._proof.full
        with self._connections.convert_errors():
            try:
                with self._connections.borrow() as connection, connection.transaction():
                    if is_still_blocked(connection, self._stuck):
                        raise StoreUnavailable(self._stuck.reason)
                    db = _PostgresDb(connection, worker)
                    write_proof(db, time.time(), needs_room=full)
            except psycopg.errors.DiskFull as error:
                raise self._proof.record_full_disk(error) from error
        self._proof.record_write(needed_room=full)

    def _drop_if_broken(self) -> None:
        if self._writer is not None and (self._writer.closed or self._writer.broken):
            self._writer.close()
            self._writer = None

    async def commit(self, operation: Callable[[Db], T]) -> T:
        def carry_out(shared: _PostgresDb) -> tuple[T, set[str]]:
            db = shared.make_caller_view()
            result = operation(db)
            shared.topics |= db.topics
            return result, db.topics

        self._raise_if_gone()
        result, topics = await self._group.commit(carry_out)
        self._topics.announce(set() if self._listens else topics)
        return result

    async def commit_together(
        self, operation: Callable[[Db, Sequence[A]], Sequence[T]], argument: A
    ) -> T:
        if operation not in self._shared:
            self._shared[operation] = partial(_run_together, operation)
        self._raise_if_gone()
        result, topics = await self._group.commit_together(self._shared[operation], argument)
        self._topics.announce(set() if self._listens else topics)
        answer: T = result
        return answer

    def run_once(self, operation: Callable[[Db], T]) -> T:
        def carry_out() -> T:
            with self._connections.connect() as connection, connection.transaction():
                db = _PostgresDb(connection, 0)
                result = operation(db)
                db.flush([ALL_TOPICS])
                return result

        with self._connections.convert_errors():
            for _ in range(ATTEMPTS_MAX - 1):
                with suppress(*_CONFLICTS):
                    return carry_out()
            return carry_out()

    async def read(self, operation: Callable[[Db], T]) -> T:
        def look() -> T:
            self._raise_if_gone()
            with self._connections.borrow() as connection:
                return operation(_PostgresDb(connection, self._proof.worker))

        def read_again() -> T:
            with self._connections.convert_errors():
                try:
                    return look()
                except psycopg.OperationalError:
                    # After a restart of the server, the idle connections are broken.
                    if not self._connections.forget_idle():
                        raise
                return look()

        # A cancelled caller does not wait for the thread, because a read changes nothing.
        return await run_billed(read_again, self._threads)

    async def read_together(
        self, operation: Callable[[Db, Sequence[A]], Sequence[T]], argument: A
    ) -> T:
        result: T = await self._readers.read_shared(operation, argument)
        return result

    def get_event(self, topic: str) -> trio.Event:
        return self._topics.get_event(topic)

    def wake(self, event: trio.Event, topics: Collection[str]) -> None:
        self._topics.wake(event, topics)

    async def run(self) -> StoreFailed | None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cut_overdue)
            nursery.start_soon(self._watch_database)
            await self._group.run()
            nursery.cancel_scope.cancel()
        return self._group.failed

    async def _cut_overdue(self) -> None:
        while True:
            await trio.sleep(RETRY_AFTER_S)
            self._connections.cut_overdue()
            if self._outage is None and (
                late := self._connections.list_used_for(TRANSACTION_TIMEOUT_S)
            ):
                await self._cut_if_blocked(late)

    async def _cut_if_blocked(self, late: Sequence[Connection]) -> None:
        """Report the database as unavailable and cut all connections if a late transaction waits
        for a lock, or if a late write does not finish. Otherwise all later writes would wait. A
        slow read alone is allowed.
        """
        writes = self._writer in late
        stuck, description = None, ""
        try:
            stuck = await self._run_in_time(
                lambda: find_reason(
                    self._connections, late, self._writer, TRANSACTION_TIMEOUT_S - RETRY_AFTER_S
                )
            )
        except StoreUnavailable as trouble:
            description = str(trouble)
        if stuck is None and writes and (description or self._connections.pooled):
            # Behind a pooler, the session of the writing connection is unknown.
            stuck = BlockingCause("its server is still busy with it; check its activity")
        # The late transaction may have ended meanwhile.
        if stuck is None or not {*late} & {*self._connections.list_used_for(TRANSACTION_TIMEOUT_S)}:
            return
        description = (
            description
            or f"{self._connections.name} does not complete a write: after"
            f" {TRANSACTION_TIMEOUT_S:g} s"
            f" {stuck.reason}"
        )
        self._stuck = stuck._replace(reason=description)
        self._record_outage(StoreUnavailable(description))
        self._listening_scope.cancel()
        with suppress(StoreUnavailable):
            await self._run_in_time(partial(end_sessions, self._connections, stuck))

    async def _watch_database(self) -> None:
        """Receive announcements. Check that the database responds and accepts a write."""
        while True:
            listener = _Listener(
                self._listening_connections, self._proof.worker, listens=self._listens
            )
            try:
                with trio.CancelScope() as self._listening_scope:
                    await self._run_in_time(listener.open)
                    with suppress(StoreFull):  # With a full disk, the database can still be read.
                        await self._run_in_time(self._prove)
                    self._record_recovery()
                    await self._receive_announcements(listener)
            except StoreUnavailable as gone:
                self._record_outage(gone)
            finally:
                listener.close()
            await trio.sleep(RETRY_AFTER_S)

    async def _receive_announcements(self, listener: _Listener) -> None:
        """Receive announcements until the listening connection fails."""
        with suppress(psycopg.Error, StoreUnavailable):
            while True:
                with trio.move_on_after(POLL_INTERVAL_S) as quiet:
                    await trio.lowlevel.wait_readable(listener.fileno())
                if quiet.cancelled_caught and await self._run_in_time(listener.ping):
                    # If the store cannot listen, only a change in the snapshot shows writes by
                    # other processes.
                    _announce(self._topics, [ANY_WRITE_TOPIC if self._listens else ALL_TOPICS])
                _announce(self._topics, listener.read_payloads())

    async def _run_in_time(self, ask: Callable[[], T]) -> T:
        """Run `ask` in a thread and return its result. Raises StoreUnavailable after 2 *
        `PING_TIMEOUT_S` seconds. If the thread still waits, its connection is cut off soon after
        that.
        """
        with trio.move_on_after(2 * PING_TIMEOUT_S), self._connections.convert_errors():
            return await trio.to_thread.run_sync(ask, abandon_on_cancel=True)
        raise self._connections.make_silent()

    def _record_outage(self, error: StoreUnavailable) -> None:
        if self._outage is None:
            self._gone_since = time.monotonic()
            log.error("%s. Until it answers, pushes are refused and links closed", error)
        self._outage = error
        self._connections.cut_all()
        self._topics.announce_all()

    def _record_recovery(self) -> None:
        if self._outage is not None:
            self._outage, self._stuck = None, BlockingCause("")
            away_seconds = time.monotonic() - self._gone_since
            log.warning(
                "%s answers again, and accepts writes, after %.0f s",
                self._connections.name,
                away_seconds,
            )
        self._topics.announce_all()

    def close(self) -> None:
        self._connections.end_all()
        if self._writer is not None:
            self._connections.end(self._writer)


def _announce(topics: Topics, payloads: Sequence[str]) -> None:
    if ALL_TOPICS in payloads:
        topics.announce_all()
    elif payloads:
        topics.announce({topic for each in payloads for topic in each.split("\n")})


def _run_together(
    operation: Callable[[Db, Sequence[A]], Sequence[T]],
    shared: _PostgresDb,
    arguments: Sequence[A],
) -> list[tuple[T, set[str]]]:
    db = shared.make_caller_view()
    results = operation(db, arguments)
    shared.topics |= db.topics
    return [(result, db.topics) for result in results]


class _Listener:
    """Connection that listens. If it cannot listen because of a pooler, it checks for writes
    instead. A thread opens and pings the connection. The hub may stop waiting for this thread.
    """

    def __init__(self, connections: Connections, worker: int, *, listens: bool) -> None:
        self._connections = connections
        self._worker = worker
        self._written = ""
        self._payloads: list[str] = []
        self._listens = listens
        self._connection: Connection | None = None
        self._closed = False

    def open(self) -> None:
        self._connection = self._connections.connect()
        try:
            self._connection.add_notify_handler(lambda heard: self._payloads.append(heard.payload))
            self._execute(f"LISTEN {CHANNEL}" if self._listens else "SELECT 1")
            if self._listens:
                # The lock is shared, because the lock of a broken connection can remain for some
                # time.
                self._execute(f"SELECT pg_advisory_lock_shared({WORKERS}, {self._worker})")
        finally:
            if self._closed:
                self.close()

    def ping(self) -> bool:
        """Ping the server. Return True if something has been written since the last ping."""
        # The snapshot contains the number of the next transaction, which increases with each
        # transaction that writes.
        before, self._written = self._written, self._execute("SELECT pg_current_snapshot()::text")
        return before != self._written

    def _execute(self, sql: str) -> str:
        assert self._connection is not None
        with self._connections.limit_use(self._connection, PING_TIMEOUT_S):
            cursor = self._connection.execute(sql.encode())
            return str(cursor.fetchone()) if cursor.description else ""

    def fileno(self) -> int:
        assert self._connection is not None
        return self._connection.fileno()

    def read_payloads(self) -> list[str]:
        """Return the payloads that have arrived. Call libpq directly, because psycopg would wait.
        Before version 3.2, psycopg would even wait without limit.
        """
        assert self._connection is not None
        pgconn = self._connection.pgconn
        pgconn.consume_input()
        while (notification := pgconn.notifies()) is not None:
            self._payloads.append(notification.extra.decode())
        payloads, self._payloads = self._payloads, []
        return payloads

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connections.end(self._connection)
