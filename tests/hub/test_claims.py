"""A hub dies while it informs people of an SOS: a remaining or later hub informs them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from fieldagent.hub.access import directory
from fieldagent.hub.field import operator_handover
from fieldagent.hub.records import claims, outward
from fieldagent.hub.records.ledger import Posting, enter_from_kits
from fieldagent.hub.store.contract import DatabaseOptions, Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.hub.webhook import deliveries
from fieldagent.package.package import Message
from fieldagent.store.group import StoreUnavailable
from tests.fork_server import COLD
from tests.hub import claiming
from tests.hub.relay import mail_relay
from tests.hub.test_contacts import kit_of, raise_sos, settle_in
from tests.hub.test_journey import folder, receiver
from tests.postgres import new_database
from tests.processes import PATIENCE, administer, agent, hub, until
from tests.running import running

BOUND = 5.0
"""Seconds from the end of a hub until another one has sent the news of an SOS."""
START = 1.0
"""Twice the seconds of a hub's start on an idle machine."""


def test_another_hub_sends_sos_news_within_seconds_of_a_hub_crash(
    database: str, tmp_path: Path
) -> None:
    """The dying hub waits for the receiver of a webhook and for a mail relay."""
    token = settle_in(database)
    administer(database, "contact", "add", "Bergwacht", "bw@example.org")
    came, over = threading.Event(), threading.Event()

    def hold_back() -> None:
        if "fieldagent-sos" in pager.headers[-1] and not came.is_set():
            came.set()
            over.wait(PATIENCE)

    with ExitStack() as stack:
        pager = stack.enter_context(receiver(before_answer=hold_back))
        relay = stack.enter_context(mail_relay())
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        silent.settimeout(PATIENCE)
        stack.callback(over.set)
        administer(database, "webhook", "add", pager.url, "--untried")
        settings = {"database": database, "webhook-allow": "127.0.0.0/8", **relay.settings}
        at_silent = {**settings, "smtp-port": str(silent.getsockname()[1])}
        began = time.monotonic()
        # A cold start, because the limit includes a start.
        dies = stack.enter_context(hub(folder(tmp_path / "dies"), at_silent, COLD))
        start = time.monotonic() - began
        kit = stack.enter_context(agent(tmp_path, kit_of(dies, token)))
        raise_sos(kit, database)
        assert came.wait(PATIENCE)
        waiting, _ = silent.accept()
        stack.enter_context(waiting)
        lives = folder(tmp_path / "lives")
        if database.startswith("postgresql"):
            stack.enter_context(hub(lives, settings, COLD))
            dies.kill()
            began = time.monotonic()
        else:
            dies.kill()
            began = time.monotonic()
            stack.enter_context(hub(lives, settings, COLD))
        ids = [each["webhook-id"] for each in pager.headers if "fieldagent-sos" in each]
        until(lambda: [each["webhook-id"] for each in pager.headers].count(ids[0]) == 2)
        relay.mail()
        # On a busy machine a start takes longer, and so does everything else here.
        assert time.monotonic() - began < BOUND * max(1.0, start / START)


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


def _make_due(db: Db) -> None:
    """Make one row of each claimed kind due: a kit posts to a workspace with a webhook."""
    db.execute("INSERT INTO workspace (id, name, created) VALUES (1, 'Alps', 0)")
    db.execute("INSERT INTO member (id, type, name, created) VALUES (1, 'User', 'Ada', 0)")
    db.execute("INSERT INTO webhook (id, workspace, url, created) VALUES (1, 1, 'http://x', 0)")
    enter_from_kits(db, [Posting(1, 1, Message("here"), 1, 12)], now=1.0, grace=60)
    outward.enter_outward_item(db, 1, "ada@example.org", 1.0)
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
    "outward": (lambda db: outward.claim_items(db, 2.0, 16), outward.release_claims),
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
    """The claim does not have to expire, which would take a minute or two."""
    claim, give_back = DUE[table]
    claimed = f"SELECT count(*) FROM {table} WHERE claimed_until > 0"
    async with running(store):
        await store.prove()
        await store.commit(_make_due)
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
