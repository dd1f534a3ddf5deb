"""Finds the reason why a statement does not finish, from PostgreSQL's own views, and explains the
reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldagent.hub.store.postgres_connections import QUERY_TIMEOUT_S, Connection, Connections
from fieldagent.system.lazy_named_tuple import NamedTuple

_SELECT_WAITS = (
    "SELECT pid, wait_event_type, wait_event, pg_blocking_pids(pid) FROM pg_stat_activity"
    " WHERE pid = ANY (%s) AND state = 'active'"
    " AND query_start < clock_timestamp() - make_interval(secs => %s)"
)
_SELECT_LOCKED = (
    "SELECT relation::regclass::text FROM pg_locks WHERE pid = %s AND relation IS NOT NULL"
    " AND (NOT granted OR locktype = 'tuple') ORDER BY granted"
)
_HOLDERS = (
    "SELECT locks.pid, application_name, usename, locks.virtualtransaction FROM pg_locks AS locks"
    " JOIN pg_stat_activity AS activity ON activity.pid = locks.pid"
    " WHERE locks.pid = ANY (%s) AND locktype = 'virtualxid' AND granted"
)
_SELECT_HOLDERS = "SELECT 1 FROM pg_locks WHERE virtualtransaction = ANY (%s) LIMIT 1"


class _WaitRow(NamedTuple):
    """A server process that waits for a lock or an event, as `_SELECT_WAITS` returns it."""

    pid: int
    kind: str | None
    event: str | None
    blocking: Sequence[int]
    """Ids of the server processes that hold the lock for which this process waits."""


class BlockingCause(NamedTuple):
    """Reason why a statement is blocked, and the transactions that block it."""

    reason: str
    blocking: tuple[str, ...] = ()
    """Transactions that hold the lock for which the statement waits, as PostgreSQL's virtual
    transaction ids."""
    waiting: tuple[int, ...] = ()
    """Ids of the server processes of this hub that wait for the lock."""


def find_reason(
    connections: Connections,
    late: Sequence[Connection],
    writer: Connection | None,
    seconds: float,
) -> BlockingCause | None:
    """Return the reason why late connections do not finish: a statement has run for `seconds` and
    waits for a lock, or the `writer` has spent `seconds` on one statement. Otherwise return None. A
    long transaction of many short statements is not blocked. Raises psycopg.Error.
    """
    pids = [each.info.backend_pid for each in late if not each.closed]
    writes = 0 if writer is None or writer.closed else writer.info.backend_pid
    with connections.connect() as connection, connections.limit_use(connection, QUERY_TIMEOUT_S):
        waits = [
            _WaitRow(*row) for row in connection.execute(_SELECT_WAITS, (pids, seconds)).fetchall()
        ]
        if blocked := [each for each in waits if each.kind == "Lock"]:
            waiting = tuple(each.pid for each in blocked)
            return _find_lock(connection, blocked[0])._replace(waiting=waiting)
    for each in waits:
        if each.pid != writes:
            continue
        if each.event == "SyncRep":
            return BlockingCause(
                "no standby has confirmed it: check those in synchronous_standby_names"
            )
        state = f"waits for {each.kind} {each.event}" if each.kind else "is busy"
        return BlockingCause(f"its server {state}: check its disk and its processors")
    return None


def _find_lock(connection: Connection, wait_row: _WaitRow) -> BlockingCause:
    locked_names = [
        name for (name,) in connection.execute(_SELECT_LOCKED, (wait_row.pid,)).fetchall()
    ]
    holders = connection.execute(_HOLDERS, ([*wait_row.blocking],)).fetchall()
    names = ", ".join(
        _get_name(holder, application or user) for holder, application, user, _ in holders
    )
    text = (
        f"it waits for {locked_names[0] if locked_names else 'what'}, which is locked by"
        f" {names or 'a prepared transaction'}: wait until it ends, or end it"
    )
    return BlockingCause(text, tuple(transaction for *_, transaction in holders))


def _get_name(pid: int, name: str) -> str:
    return f"session {pid} ({name})"


def end_sessions(connections: Connections, stuck: BlockingCause) -> None:
    """End the server processes that wait. While a process waits for a lock, PostgreSQL does not
    notice that its client is lost, and the process keeps its own locks. Raises psycopg.Error.
    """
    if stuck.waiting:
        with (
            connections.connect() as connection,
            connections.limit_use(connection, QUERY_TIMEOUT_S),
        ):
            end_query = "SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid"
            connection.execute(end_query, ([*stuck.waiting],))


def is_still_blocked(connection: Connection, stuck: BlockingCause) -> bool:
    """Return True if the transactions that blocked the statement still exist."""
    rows: list[Any] = []
    if stuck.blocking:
        rows = connection.execute(_SELECT_HOLDERS, ([*stuck.blocking],)).fetchall()
    return bool(rows)
