"""The hub deletes data by age in small steps, on both engines."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from fieldagent.hub.access import attempts
from fieldagent.hub.records import audit, forgetting
from fieldagent.hub.records.ledger import Posting, add_item
from fieldagent.hub.store.contract import Db, Store, insert
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import Message
from tests.hub.field import GRACE, START
from tests.postgres import new_database
from tests.processes import until


def count_rows(db: Db, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}")[0][0])


def test_audit_log_is_deleted_by_age_in_slices(store: Store) -> None:
    some = audit.DELETED_PER_CALL
    lines = [(START + number, "1", "push", "") for number in range(2 * some + 10)]
    store.run_once(lambda db: insert(db, "audit", ("at", "actor", "action", "detail"), lines))
    before = START + 2 * some
    dropped: list[int] = []
    while not dropped or dropped[-1]:
        dropped.append(store.run_once(lambda db: audit.delete_old_lines(db, before=before)))
    assert dropped == [some, some, 0]
    assert store.run_once(lambda db: count_rows(db, "audit")) == 10
    assert store.run_once(lambda db: min(row["at"] for row in audit.list_latest(db, 100))) == before


def test_expired_sign_in_attempts_are_deleted_in_slices(store: Store) -> None:
    some = attempts.DELETED_PER_CALL
    rows = [(f"198.51.100.{number}", START + number % 2) for number in range(2 * some + 4)]
    store.run_once(lambda db: insert(db, "attempt", ("who", "tat"), rows))
    dropped = [store.run_once(lambda db: attempts.delete_old_attempts(db, START)) for _ in range(3)]
    assert dropped == [some, 2, 0]
    assert store.run_once(lambda db: count_rows(db, "attempt")) == some + 2


def test_items_and_their_digests_are_deleted_in_slices(store: Store) -> None:
    some = forgetting.ROWS_PER_TRANSACTION
    many = some + 11

    def fill(db: Db) -> None:
        db.execute("INSERT INTO workspace (id, name, created) VALUES (1, 'Alps', 0)")
        db.execute("INSERT INTO member (id, type, name, created) VALUES (1, 'User', 'Ada', 0)")
        db.execute(
            "INSERT INTO device (id, workspace, member, name, created) VALUES (1, 1, 1, 'kit', 0)"
        )
        for number in range(many):
            sos, late = int(number == 7), START + (number == 8)
            db.execute("INSERT INTO arrived VALUES (1, 0, ?, ?, ?, ?)", number, b"d", late, sos)
            add_item(db, Posting(1, 1, Message("x"), int(START), 12), now=START, grace=GRACE)

    store.run_once(fill)
    items = [
        store.run_once(lambda db: forgetting.delete_old_items(db, before=START + 1, now=START + 1))
        for _ in range(3)
    ]
    remembered = [
        store.run_once(lambda db: forgetting.forget_remembered(db, before=START + 1))
        for _ in range(3)
    ]
    assert (items, remembered) == ([some, 11, 0], [some, 9, 0])
    kept = store.run_once(lambda db: db.execute("SELECT sequence FROM arrived ORDER BY sequence"))
    assert (kept, store.run_once(lambda db: count_rows(db, "item"))) == ([(7,), (8,)], 0)


def test_webhook_deliveries_have_an_index_by_item(database: str) -> None:
    """SQLite and PostgreSQL use an existing index for any number of other rows."""
    store = open_store(database)
    sql = "SELECT indexdef FROM pg_indexes WHERE tablename = 'webhook_delivery'"
    if not database.startswith("postgresql"):
        sql = "SELECT sql FROM sqlite_master WHERE tbl_name = 'webhook_delivery'"
    defined = [str(row[0]) for row in store.run_once(lambda db: db.execute(sql))]
    store.close()
    assert any(text.endswith("(item)") for text in defined)


def _add_waiting_item(db: Db) -> None:
    db.execute("INSERT INTO workspace (id, name, created) VALUES (1, 'Alps', 0)")
    db.execute("INSERT INTO member (id, type, name, created) VALUES (1, 'User', 'Ada', 0)")
    db.execute(
        "INSERT INTO device (id, workspace, member, name, created) VALUES (1, 1, 1, 'kit', 0)"
    )
    add_item(db, Posting(1, 1, Message("x"), int(START), 12), now=START, grace=GRACE)
    db.execute(
        "INSERT INTO delivery (item, device, sequence, state, rank, expires)"
        " SELECT id, 1, 1, 'waiting', 0, ? FROM item",
        START,
    )


OLD = f"INSERT INTO attempt (who, tat) VALUES ('a guesser', {START - 1})"
Work = Callable[[Db], object]


@pytest.mark.parametrize(
    ("prepare", "elsewhere", "sweep", "kept"),
    [
        (
            lambda db: db.execute(OLD),
            f"UPDATE attempt SET tat = {START + 60}",
            lambda db: attempts.delete_old_attempts(db, START),
            "SELECT count(*) FROM attempt",
        ),
        (
            _add_waiting_item,
            "UPDATE delivery SET state = 'stored'",
            lambda db: forgetting.expire_deliveries(db, START),
            "SELECT count(*) FROM delivery WHERE state = 'stored'",
        ),
    ],
    ids=["a guess is counted", "the kit has it"],
)
def test_row_changed_by_another_process_is_not_deleted(
    postgres: str, prepare: Work, elsewhere: str, sweep: Work, kept: str
) -> None:
    """The other process has changed the row but not committed it when the sweep finds its old
    state.
    """
    database = new_database(postgres)
    with (
        closing(open_store(database)) as store,
        psycopg.connect(database) as other,
        psycopg.connect(database, autocommit=True) as looker,
        ThreadPoolExecutor() as threads,
    ):
        store.run_once(prepare)
        other.execute(elsewhere.encode())
        swept = threads.submit(store.run_once, sweep)
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted"
        until(lambda: looker.execute(waits).fetchone() is not None)
        other.commit()
        swept.result()
        assert store.run_once(lambda db: db.execute(kept)) == [(1,)]
