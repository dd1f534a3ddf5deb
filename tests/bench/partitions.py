"""Estimates the gain and cost of partitions for the large tables, on copies of them.

Run it as `python -m tests.bench.partitions [ITEMS]`. First it forgets a month of items like the
hub. Then it copies three tables with a partition per month, and with one per month and hash of the
workspace. It drops a month of these, and plans and runs statements of the daily work. The copies
have no foreign keys.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import trio

from fieldagent.hub.records import forgetting
from fieldagent.hub.records.ledger import WAITING_STATES
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from tests.bench.large_hub import DATE, ITEMS, SECONDS, fill
from tests.bench.process import family_processor
from tests.bench.table import row
from tests.postgres import Server, new_database, server
from tests.running import running

MONTHS, HASHES = 12, 8
MONTH = int(30 * 86_400 / SECONDS)
"""Items of a month."""
TRIES = 8
WORKSPACES = 50
"""Workspaces in the copies."""
TABLES = {
    "item": ("id", "id", ("(id)", "(workspace, id)", "(workspace, sender, id)", "(accepted)")),
    "delivery": (
        "item",
        "item, device",
        (
            "(item)",
            "(device, sequence)",
            f"(device, rank, sequence) WHERE state IN {WAITING_STATES}",
        ),
    ),
    "webhook_delivery": ("item", "webhook, item", ("(item)", "(webhook, sender, item)")),
}
"""Tables to copy, each with its column for the item's id, its key, and its indexes."""
STATEMENTS = {
    "an item by its number": "SELECT * FROM {of}item WHERE id = {middle}",
    "its deliveries": "SELECT * FROM {of}delivery WHERE item = {middle}",
    "mail of a device": "SELECT item FROM {of}delivery WHERE device = 8 AND state IN"
    f" {WAITING_STATES} ORDER BY rank, sequence LIMIT 64",
    "the newest of a workspace": "SELECT id FROM {of}item WHERE workspace = 1"
    " ORDER BY id DESC LIMIT 50",
}

Connection = psycopg.Connection[Any]


def run(connection: Connection, sql: str) -> list[tuple[Any, ...]]:
    cursor = connection.execute(sql.encode())
    return cursor.fetchall() if cursor.description else []


def told_cost(connection: Connection, postgres: Server, what: str, work: Callable[[], Any]) -> None:
    """Print the processor time and the log size of the server."""
    spent = family_processor(postgres.pid)
    ((place,),) = run(connection, "SELECT pg_current_wal_insert_lsn()::text")
    work()
    asked = f"SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '{place}')"
    ((log,),) = run(connection, asked)
    row(what, family_processor(postgres.pid) - spent, "", "s")
    row("  its log", float(log) / 1e6, "", "MB")


def all_of(database: str, forget: Callable[[Db], int]) -> None:
    """Forget some items in each transaction, like a hub."""
    with closing(open_store(database)) as store:
        trio.run(_all_of, store, forget)


async def _all_of(store: Store, forget: Callable[[Db], int]) -> None:
    async with running(store):
        while await store.commit(forget):
            pass


def copies(connection: Connection, schema: str, hashes: int) -> None:
    """Make tables in `schema` with partitions. A row's month follows from the number of
    its item.
    """
    run(connection, f"CREATE SCHEMA {schema}")
    ((first,),) = run(connection, "SELECT min(id) FROM item")
    for table, (item, key, indexes) in TABLES.items():
        whole = f"{schema}.{table}"
        more = "INCLUDING DEFAULTS, hashed BIGINT, month BIGINT"
        run(
            connection,
            f"CREATE TABLE {whole} (LIKE public.{table} {more}) PARTITION BY LIST (month)",
        )
        run(connection, f"ALTER TABLE {whole} ADD PRIMARY KEY (hashed, month, {key})")
        for index in indexes:
            run(connection, f"CREATE INDEX ON {whole} {index}")
        for month in range(MONTHS):
            part = f"CREATE TABLE {whole}_{month} PARTITION OF {whole} FOR VALUES IN ({month})"
            run(connection, part + (" PARTITION BY HASH (hashed)" if hashes > 1 else ""))
            for rest in range(hashes if hashes > 1 else 0):
                of = f"PARTITION OF {whole}_{month} FOR VALUES"
                modulus = f"WITH (MODULUS {hashes}, REMAINDER {rest})"
                run(connection, f"CREATE TABLE {whole}_{month}_{rest} {of} {modulus}")
        run(
            connection,
            f"INSERT INTO {whole} SELECT x.*, {item} % {WORKSPACES}, ({item} - {first}) / {MONTH}"
            f" FROM public.{table} AS x WHERE {item} < {first} + {MONTH * MONTHS}",
        )
    run(connection, "ANALYZE")


def tell_statements(connection: Connection, name: str, of: str) -> None:
    ((middle,),) = run(connection, f"SELECT (min(id) + max(id)) / 2 FROM {of}item")
    for what, sql in STATEMENTS.items():
        explained = "EXPLAIN (ANALYZE, SUMMARY) " + sql.format(of=of, middle=middle)
        planned, took = min(_times(run(connection, explained)) for _ in range(TRIES))
        row(f"{name}: {what}, planned", planned, "", "ms")
        row("  run", took, "", "ms")


def _times(lines: list[tuple[Any, ...]]) -> tuple[float, float]:
    times = dict(line.strip().partition(": ")[::2] for (line,) in lines)
    planned, took = (float(times[f"{each} Time"].split()[0]) for each in ("Planning", "Execution"))
    return planned, took


def main(items: int = ITEMS) -> None:
    with server(durable=True) as postgres:
        database = new_database(postgres.address)
        with closing(open_store(database)) as store:
            store.run_once(partial(fill, items=items))
        with psycopg.connect(database, autocommit=True) as connection:
            run(connection, "VACUUM ANALYZE")
            before = DATE - (items - MONTH) * SECONDS
            cost = partial(told_cost, connection, postgres)
            forget = partial(forgetting.delete_old_items, before=before, now=float(DATE))
            cost(f"{MONTH} items forgotten", partial(all_of, database, forget))
            remembered = partial(forgetting.forget_remembered, before=before)
            cost("  what they are recognised by", partial(all_of, database, remembered))
            cost("  VACUUM", partial(run, connection, "VACUUM"))
            tell_statements(connection, "no partitions", "public.")
            for hashes in (1, HASHES):
                name = f"{MONTHS * hashes} partitions"
                schema = f"parts_{hashes}"
                copies(connection, schema, hashes)
                tell_statements(connection, name, f"{schema}.")
                dropped = ", ".join(f"{schema}.{table}_0" for table in TABLES)
                cost(f"{name}: a month dropped", partial(run, connection, f"DROP TABLE {dropped}"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
