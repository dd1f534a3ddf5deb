"""A hub dies while it informs people of an SOS: a remaining or later hub informs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from fieldagent.hub.access import directory
from fieldagent.hub.field import operator_handover
from fieldagent.hub.records import claims
from fieldagent.hub.records.ledger import Posting, add_items_from_kits
from fieldagent.hub.store.contract import DatabaseOptions, Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.hub.webhook import deliveries
from fieldagent.package.package import Message
from fieldagent.store.group import StoreUnavailable
from tests.hub import claiming
from tests.postgres import new_database
from tests.processes import PATIENCE
from tests.running import running


def _claim(db: Db) -> None:
    db.execute("INSERT INTO workspace (id, name, created) VALUES (1, 'Alps', 0)")
    db.execute("INSERT INTO member (id, type, name, created) VALUES (1, 'User', 'Ada', 0)")
    db.execute("INSERT INTO webhook (id, workspace, url, created) VALUES (1, 1, 'http://x', 0)")
    for item, worker in enumerate((db.worker, db.worker + 1, db.worker + 2), 1):
        db.execute(
            "INSERT INTO item (id, request_id, workspace, sender, body, priority, accepted)"
            " VALUES (?, ?, 1, 1, ?, 0, 0)",
            *(item, str(item), b""),
        )
        db.execute(
            "INSERT INTO webhook_delivery (webhook, item, sender, state, claimed_until, claimed_by)"
            " VALUES (1, ?, 1, 'waiting', 1e12, ?)",
            *(item, worker),
        )
    db.execute("INSERT INTO worker (number, proved, filler) VALUES (?, 0, ?)", db.worker + 1, b"")


def _claimed(db: Db) -> list[int]:
    rows = db.execute("SELECT item FROM webhook_delivery WHERE claimed_until > 0 ORDER BY item")
    return [item for (item,) in rows]


async def test_claims_of_running_hubs_are_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL, a process that is not known to be dead keeps its claim too, until the claim
    expires. A file has only one process.
    """
    monkeypatch.setattr(claims, "CHECK_S", 0.01)
    async with running(store), trio.open_nursery() as nursery:
        await store.prove()
        await store.commit(_claim)
        nursery.start_soon(claims.run, store)
        left = [1, 3] if store.shared else [1]
        with trio.fail_after(PATIENCE):
            while await store.read(_claimed) != left:
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


def make_due(db: Db) -> None:
    """Make one row of each claimed kind due: a kit posts to a workspace with a webhook."""
    db.execute("INSERT INTO workspace (id, name, created) VALUES (1, 'Alps', 0)")
    db.execute("INSERT INTO member (id, type, name, created) VALUES (1, 'User', 'Ada', 0)")
    db.execute("INSERT INTO webhook (id, workspace, url, created) VALUES (1, 1, 'http://x', 0)")
    add_items_from_kits(db, [Posting(1, 1, Message("here"), 1, 12)], now=1.0, grace=60)
    device, _ = directory.add_device(
        db, 1, 1, directory.NewDevice("kit", "300234010000001", "directip"), now=1.0
    )
    db.execute(
        "INSERT INTO mobile_terminated (device, body, pieces, urgent, state, created)"
        " VALUES (?, ?, '[]', 0, 'ready', 0)",
        *(device, b"x"),
    )


DUE: dict[str, tuple[Callable[[Db], Any], Callable[[Db, Any], None]]] = {
    "webhook_delivery": (lambda db: claiming.claim(db, 2.0), deliveries.release_claims),
    "mobile_terminated": (
        lambda db: operator_handover.claim_messages(db, 2.0),
        operator_handover.release_claims,
    ),
}


class _Silent:
    """A store that disappears in its first commit, which is on its disk."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.commits = 0

    async def commit(self, operation: Callable[[Db], Any]) -> Any:
        result = await self._store.commit(operation)
        self.commits += 1
        if self.commits == 1:
            raise StoreUnavailable("the connection was cut")
        return result


@pytest.mark.parametrize("table", DUE)
async def test_claim_with_unknown_commit_result_is_released(table: str, store: Store) -> None:
    await check_release(store, table, make_due, *DUE[table])


async def check_release(
    store: Store,
    table: str,
    make_due: Callable[[Db], Any],
    claim: Callable[[Db], Any],
    give_back: Callable[[Db, Any], None],
) -> None:
    """Check that a claim does not have to expire, which would take a minute or two."""
    claimed = f"SELECT count(*) FROM {table} WHERE claimed_until > 0"
    async with running(store):
        await store.prove()
        await store.commit(make_due)
        away: Any = _Silent(store)
        with pytest.raises(StoreUnavailable):
            await claims.commit_claim(away, claim, give_back)
        assert away.commits == 2
        assert await store.read(lambda db: db.execute(claimed)) == [(0,)]
        assert len(await claims.commit_claim(store, claim, give_back)) == 1
        assert await store.read(lambda db: db.execute(claimed)) == [(1,)]


async def test_no_worker_is_reported_dead_through_a_connection_pooler(postgres: str) -> None:
    """Locks do not belong to a process behind a pooler, so claims expire by themselves."""
    store = open_store(new_database(postgres), DatabaseOptions(pooled=True))
    async with running(store):
        await store.prove()
        assert await store.commit(lambda db: db.worker) == 0
        assert await store.read(claims.list_missing) == []
    store.close()
