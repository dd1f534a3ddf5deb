"""Number and age of waiting rows. The rows are counted in batches, so that each read of a long
queue is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from fieldagent.hub.records import workspace_log
from fieldagent.hub.records.ledger import WAITING_STATES
from fieldagent.hub.store.contract import Db, Store, make_marks
from fieldagent.system.lazy_named_tuple import NamedTuple

ROWS_PER_READ = 2_000
"""Largest number of rows that one read counts. Such a read takes about 5 ms."""


class IndexedTable(NamedTuple):
    """Table whose rows are counted. `key` contains the columns of an index, in whose order the rows
    are read.
    """

    table: str
    key: str
    which: str


DELIVERIES = IndexedTable("delivery", "device, rank, sequence", f"state IN {WAITING_STATES}")
WEBHOOKS = IndexedTable("webhook_delivery", "webhook, sender, item", "state = 'waiting'")
DEAD_LETTER_TABLE = IndexedTable("webhook_delivery", "webhook, item", "state = 'dead'")


class Backlog(NamedTuple):
    rows: int
    since: float | None
    """Unix time when the oldest item arrived; None if no row waits."""


class Queues(NamedTuple):
    """Numbers of waiting rows at the Unix time `at`."""

    deliveries: Backlog
    webhooks: Backlog
    dead: Backlog
    """Deliveries to webhooks that the hub does not retry automatically."""
    at: float

    @property
    def rows(self) -> int:
        """Return the number of all waiting and dead rows."""
        return self.deliveries.rows + self.webhooks.rows + self.dead.rows


async def measure_backlog(store: Store, now: float) -> Queues:
    """Count the waiting and the dead deliveries. The three counts are made in several short
    transactions, so they are from different moments.
    """
    deliveries_backlog = await count_backlog(store, DELIVERIES)
    waiting = await store.read(partial(add_awaited, backlog=deliveries_backlog, now=now))
    return Queues(
        waiting,
        await count_backlog(store, WEBHOOKS),
        await count_backlog(store, DEAD_LETTER_TABLE),
        now,
    )


async def count_backlog(store: Store, queue: IndexedTable) -> Backlog:
    """Count the rows of a queue in batches of `ROWS_PER_READ`, and find the arrival time of their
    oldest item.
    """
    rows, items = 0, []
    after_place: Sequence[Any] | None = ()
    while after_place is not None:
        batch_count, oldest, after_place = await store.read(
            partial(count_batch, queue=queue, after=after_place)
        )
        rows += batch_count
        items += [] if oldest is None else [oldest]
    if not items:
        return Backlog(0, None)
    # Ids of items follow the order of their arrival.
    arrived = await store.read(
        lambda db: db.execute("SELECT accepted FROM item WHERE id = ?", min(items))
    )
    return Backlog(rows, float(arrived[0][0]) if arrived else None)


def add_awaited(db: Db, backlog: Backlog, now: float) -> Backlog:
    """Add to `backlog` the waiting deliveries whose rows are created only when devices fetch
    them.
    """
    rows, oldest = workspace_log.count_awaited(db, now)
    arrived = db.execute("SELECT accepted FROM item WHERE id = ?", oldest)
    accepted_times = [float(at) for (at,) in arrived] + (
        [] if backlog.since is None else [backlog.since]
    )
    return Backlog(backlog.rows + rows, min(accepted_times, default=None))


def count_batch(
    db: Db, queue: IndexedTable, after: Sequence[Any]
) -> tuple[int, int | None, Sequence[Any] | None]:
    """Return the number of rows in the next batch, the oldest item in it, and the key after which
    counting continues. The key is None at the end.
    """
    table, key, which = queue
    after_place = f"{which} AND ({key}) > ({make_marks(after)})" if after else which
    last = db.execute(
        f"SELECT {key} FROM {table} WHERE {after_place} ORDER BY {key} LIMIT 1 OFFSET"
        f" {ROWS_PER_READ - 1}",
        *after,
    )
    last_place = last[0] if last else None
    if last_place is not None:
        after_place += f" AND ({key}) <= ({make_marks(last_place)})"
    sql = f"SELECT count(*), min(item) FROM {table} WHERE {after_place}"
    ((count, oldest),) = db.execute(sql, *after, *(last_place or ()))
    return count, oldest, last_place
