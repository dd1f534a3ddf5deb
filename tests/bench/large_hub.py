"""Finds the slowest statement of the hub's daily work on a database with a million items.
In a new database every statement is fast.

Run it as `python -m tests.bench.large_hub [ITEMS]`. The program's own functions carry out each
operation several times in separate transactions. The statement with the largest median time counts,
because no other program writes at the same time.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fieldagent.hub.access.caller import DISPATCHER, Caller
from fieldagent.hub.access.subject import Subject
from fieldagent.hub.administration import deletion
from fieldagent.hub.administration.export import list_item_numbers
from fieldagent.hub.api import reading
from fieldagent.hub.api.reading import ItemFilter
from fieldagent.hub.api.standing import list_device_standings
from fieldagent.hub.contract import Bearer
from fieldagent.hub.field import check_in, mobile_terminated, operator_handover
from fieldagent.hub.field.backlog import DEAD_LETTER_TABLE, DELIVERIES, WEBHOOKS, count_batch
from fieldagent.hub.field.envelope_packing import LOOK_AT, list_receipts, list_waiting
from fieldagent.hub.records import audit, forgetting, ledger, ring_alerts, sos
from fieldagent.hub.records.ledger import Posting, add_items
from fieldagent.hub.service import health
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import is_postgres, open_store
from fieldagent.hub.webhook import deliveries, webhook_directory
from fieldagent.package.package import Location, Message
from fieldagent.wire.envelope import Entry, encode
from tests.bench.table import judged, show
from tests.hub.claiming import claim
from tests.postgres import new_database, server

ITEMS, DEVICES = 1_000_000, 100
SECONDS = 60.0
"""Seconds between two items: a million items are two years of one workspace."""
TIMES = 5
GOAL = 20.0
"""Maximum milliseconds of a statement."""
DATE = 1_790_000_000
REST_OF_ID = "-0000-4000-8000-000000000000"
"""Rest of a request id after the item's number."""


class Slowest(NamedTuple):
    milliseconds: float
    statement: str


class _Timed:
    """Implements `Db`."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self.skip_locked, self.for_update = db.skip_locked, db.for_update
        self.worker, self.living_workers = db.worker, db.living_workers
        self.takes_lists = db.takes_lists
        self.announce = db.announce
        self.took: list[tuple[str, float]] = []

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        began = time.perf_counter()
        rows = self._db.execute(sql, *parameters)
        self.took.append((sql, 1000 * (time.perf_counter() - began)))
        return rows

    def write(self, sql: str, *parameters: Any) -> None:
        self.execute(sql, *parameters)


def fill(db: Db, items: int) -> None:
    """Add a workspace with two years: each item goes to one device and one webhook, and almost all
    have ended.
    """
    numbers = (
        "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number"
        f" WHERE n < {items})"
    )
    here = Location(46.5, 7.25, datetime.fromtimestamp(DATE, UTC))
    bodies = [encode([Entry(0, said, DATE)]) for said in (here, Message("Camp reached, all well"))]
    db.execute("INSERT INTO workspace (id, name, created) VALUES (1, 'Alps', 0)")
    db.execute(
        f"INSERT INTO member (id, type, name, created) {numbers}"
        f" SELECT n, 'User', 'kit ' || n, 0 FROM number WHERE n <= {DEVICES}"
    )
    db.execute("INSERT INTO membership (workspace, member) SELECT 1, id FROM member")
    db.execute(
        "INSERT INTO device (id, workspace, member, name, link_token, created, imei, operator,"
        " next_sequence) SELECT id, 1, id, name, 'token ' || id, 0, 300000000000000 + id,"
        f" 'directip', {items + 1} FROM member"
    )
    db.execute("INSERT INTO webhook (workspace, url, created) VALUES (1, 'https://x.test', 0)")
    # Three of four came from a device, and every hundredth is an SOS.
    accepted = f"{DATE}.0 - ({items} - n) * {SECONDS}"
    db.execute(
        "INSERT INTO item (id, request_id, workspace, sender, target, body, sos, priority,"
        f" accepted, expires, source_device, source_sequence, kind, words) {numbers}"
        f" SELECT n, substr(CAST(100000000 + n AS TEXT), 2) || '{REST_OF_ID}', 1,"
        f" {_rest('n', DEVICES)} + 1, {_rest('n + 1', DEVICES)} + 1,"
        f" CASE WHEN {_rest('n', 2)} = 0 THEN ? ELSE ? END,"
        f" CASE WHEN {_rest('n', 100)} = 0 THEN 1 ELSE 0 END, 12, {accepted},"
        f" {accepted} + {items * SECONDS / 100},"
        f" CASE WHEN {_rest('n', 4)} > 0 THEN {_rest('n', DEVICES)} + 1 END,"
        f" CASE WHEN {_rest('n', 4)} > 0 THEN n END,"
        f" CASE WHEN {_rest('n', 2)} = 0 THEN 'location' ELSE 'message' END,"
        " 'camp reached, all well' FROM number",
        *bodies,
    )
    late = f"target = 8 AND id > {items * 0.9}"
    # Two kits were away: the items for one have expired, those for the other have not.
    db.execute(
        "INSERT INTO delivery (item, device, sequence, state, satellite_from, way, ended)"
        f" SELECT id, target, id, CASE WHEN target = 7 AND id > {items * 0.4}"
        f" AND id < {items * 0.98} THEN 'waiting' WHEN {late} THEN 'waiting'"
        f" WHEN {_rest('id', 50)} = 0 THEN 'expired' ELSE 'stored' END, accepted, 'ip', accepted"
        " FROM item"
    )
    db.execute(
        f"UPDATE item SET expires = {DATE + 864_000.0} WHERE target = 8 AND id > {items * 0.9}"
    )
    # A webhook was down for the maximum time.
    db.execute(
        "INSERT INTO webhook_delivery (webhook, item, sender, state) SELECT 1, id, sender,"
        f" CASE WHEN id > {items * 0.95} THEN 'waiting' WHEN {_rest('id', 500)} = 0 THEN 'dead'"
        " ELSE 'handed' END FROM item"
    )
    db.execute(
        "INSERT INTO receipt (device, sequence, member, at, state, sent)"
        " SELECT source_device, source_sequence, target, accepted, 'sent', accepted FROM item"
        " WHERE source_device IS NOT NULL"
    )
    db.execute(
        "INSERT INTO arrived (device, origin, sequence, digest, at)"
        " SELECT source_device, sender, source_sequence, body, accepted FROM item"
        " WHERE source_device IS NOT NULL"
    )
    db.execute(
        "INSERT INTO audit (at, actor, action, detail) SELECT accepted, sender, 'push', request_id"
        " FROM item ORDER BY id"
    )
    db.execute(
        "INSERT INTO sos (workspace, device, item, kind, state, raised, closed)"
        " SELECT 1, sender, id, 'sos', 'closed', accepted, accepted FROM item WHERE sos = 1"
    )
    db.execute("UPDATE sos SET state = 'open', closed = NULL WHERE id = (SELECT max(id) FROM sos)")
    for table, greatest in (("device", DEVICES), ("member", DEVICES), ("item", items)):
        _begin_above(db, table, greatest)


def _rest(number: str, divisor: int) -> str:
    """Return the remainder of a division: `%` marks a parameter in psycopg."""
    return f"(({number}) - ({number}) / {divisor} * {divisor})"


def _begin_above(db: Db, table: str, greatest: int) -> None:
    """Continue after the greatest id: PostgreSQL's sequence is independent of the rows."""
    if db.for_update():
        db.execute(f"ALTER TABLE {table} ALTER COLUMN id RESTART WITH {greatest + 1}")


def operations(items: int) -> dict[str, Callable[[Db], Any]]:
    """Return the hub's complete operations."""
    newest = float(DATE)
    caller = Caller(1, "bench", 1, frozenset(), 1, "User", "1", DISPATCHER, True)
    posting = Posting(
        1, 1, Message("to one"), DATE, priority=12, target=2, expires=newest + 86_400.0
    )
    to_all = replace(posting, target=None)
    since = newest - items * SECONDS / 2
    dead = f"{500:08}{REST_OF_ID}"

    def find(**wanted: Any) -> Callable[[Db], Any]:
        return lambda db: reading.list_items(
            db, reading.find_items(db, caller, ItemFilter(**wanted), reading.END, 50).numbers
        )

    return {
        "push to one": lambda db: add_items(db, [posting], now=newest, grace=60),
        "push to the workspace": lambda db: add_items(db, [to_all], now=newest, grace=60),
        "64 pushes together": lambda db: add_items(db, [posting] * 64, now=newest, grace=60),
        "mailbox read of a kit with 1 000 waiting": lambda db: list_waiting(
            db, 8, newest, due_condition="1 = 1", limit=LOOK_AT
        ),
        "receipts of a kit": lambda db: list_receipts(db, 8, limit=32),
        "confirm": lambda db: ledger.confirm(db, items * 9 // 10 + 7, 8, Bearer.IP, newest),
        "what has come of an item": lambda db: list_device_standings(db, items // 2, newest),
        "export: the next": lambda db: list_item_numbers(
            db, Subject("user", 9, "kit 9"), items // 2
        ),
        "delete a user's items": lambda db: deletion.delete_items(
            db, Subject("user", 9, "kit 9"), items // 2
        ),
        "empty a device": lambda db: deletion.empty_device(db, 9),
        "when the next expires": forgetting.compute_next_expiry,
        "expire": lambda db: forgetting.expire_deliveries(db, newest),
        "forget items": lambda db: forgetting.delete_old_items(db, before=since, now=newest),
        "forget what items are recognised by": lambda db: forgetting.forget_remembered(
            db, before=since
        ),
        "forget audit lines": lambda db: audit.delete_old_lines(db, before=since),
        "figures: of what is few": lambda db: health.count_few(db, newest),
        "figures: deliveries that wait": lambda db: count_batch(db, DELIVERIES, ()),
        "figures: webhook deliveries that wait": lambda db: count_batch(db, WEBHOOKS, ()),
        "figures: dead webhook deliveries": lambda db: count_batch(db, DEAD_LETTER_TABLE, ()),
        "satellite: what is due": lambda db: operator_handover.is_due(db, newest),
        "satellite: when more is due": operator_handover.compute_next_due,
        "satellite: pack": lambda db: mobile_terminated.pack_due_messages(db, newest),
        "satellite: fragments that are missing": lambda db: mobile_terminated.ask_for_fragments(
            db, newest
        ),
        "ring alerts: what is due": lambda db: ring_alerts.is_due(db, newest),
        "webhooks: what is due": deliveries.list_oldest,
        "webhooks: claim": lambda db: claim(db, newest),
        "webhooks: listing": lambda db: webhook_directory.list_webhooks(db, 1),
        "webhooks: replay one": lambda db: webhook_directory.replay_dead_letters(
            db, 1, dead, now=newest
        ),
        "webhooks: dead letters": lambda db: webhook_directory.list_dead_letters(db, 1, limit=100),
        "check-ins": check_in.compute_next_late,
        "list: newest": find(),
        "list: by a word that is nowhere": find(text="nowhere"),
        "list: SOS": find(sos=True),
        "list: half a year ago": find(until=since),
        "list: one by its id": find(request_id=f"{77:08}{REST_OF_ID}"),
        "devices": lambda db: reading.list_devices(db, caller, reading.END, 50, newest),
        "deliveries of a device": lambda db: reading.list_deliveries(
            db, caller, 8, None, reading.END, 50, newest
        ),
        "deliveries of a device that wait": lambda db: reading.list_deliveries(
            db, caller, 8, "waiting", reading.END, 50, newest
        ),
        "SOS desk": lambda db: sos.list_sos(db, 1, "open", reading.END, 50),
        "events behind a listener": lambda db: reading.list_next_items(db, 1, None, items - 10, 50),
        "what a deletion would take": lambda db: deletion.plan_deletion(
            db, Subject("user", 9, "kit 9")
        ),
    }


class _Undone(Exception):
    """Error that undoes an operation, so that each run has the same database."""


def measured(store: Store, operation: Callable[[Db], Any]) -> Slowest:
    """Return the slowest statement by its median time."""
    took: dict[int, list[tuple[str, float]]] = defaultdict(list)

    def once(db: Db) -> None:
        timed = _Timed(db)
        operation(timed)
        for place, each in enumerate(timed.took):
            took[place].append(each)
        raise _Undone

    for _ in range(TIMES):
        with suppress(_Undone):
            store.run_once(once)
    each = [
        Slowest(statistics.median(ms for _, ms in times), times[0][0]) for times in took.values()
    ]
    return max(each)


def large_hub(database: str, items: int) -> Iterator[tuple[str, Slowest]]:
    store = open_store(database)
    try:
        store.run_once(partial(fill, items=items))
        if is_postgres(database):
            # autovacuum does this within minutes.
            store.run_once(lambda db: db.execute("ANALYZE"))
        for what, operation in operations(items).items():
            yield what, measured(store, operation)
    finally:
        store.close()


def main(items: int = ITEMS) -> None:
    with tempfile.TemporaryDirectory() as folder, server(durable=True) as postgres:
        databases = {
            "PostgreSQL": new_database(postgres.address),
            "SQLite": str(Path(folder, "hub.sqlite3")),
        }
        for engine, database in databases.items():
            show(f"{items:,} items on {engine}: slowest statement, ms (goal {GOAL:.0f})")
            for what, slowest in large_hub(database, items):
                met = slowest.milliseconds <= GOAL
                line = judged(f"{what:<62} {slowest.milliseconds:>7.2f}  ", met)
                show(line if met else f"{line}: {slowest.statement}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
