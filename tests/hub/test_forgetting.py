"""What the hub drops by age, some at a time, on both engines."""

from __future__ import annotations

from fieldagent.hub import attempts, audit, ledger
from fieldagent.hub.ledger import Posting, enter
from fieldagent.hub.store.contract import Db, Store, insert
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import Message
from tests.hub.field import GRACE, START


def count(db: Db, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}")[0][0])


def test_the_audit_is_dropped_by_age_in_slices(store: Store) -> None:
    some = audit.FORGOTTEN_AT_ONCE
    lines = [(START + number, "1", "push", "") for number in range(2 * some + 10)]
    store.once(lambda db: insert(db, "audit", ("at", "actor", "action", "detail"), lines))
    before = START + 2 * some
    dropped: list[int] = []
    while not dropped or dropped[-1]:
        dropped.append(store.once(lambda db: audit.forget(db, before=before)))
    assert dropped == [some, some, 0]
    assert store.once(lambda db: count(db, "audit")) == 10
    assert store.once(lambda db: min(row["at"] for row in audit.latest(db, 100))) == before


def test_attempts_are_dropped_in_slices_once_they_count_no_more(store: Store) -> None:
    some = attempts.FORGOTTEN_AT_ONCE
    rows = [(f"198.51.100.{number}", START + number % 2) for number in range(2 * some + 4)]
    store.once(lambda db: insert(db, "attempt", ("who", "tat"), rows))
    dropped = [store.once(lambda db: attempts.forget(db, START)) for _ in range(3)]
    assert dropped == [some, 2, 0]
    assert store.once(lambda db: count(db, "attempt")) == some + 2


def test_what_was_recognised_is_dropped_once_all_items_are(store: Store) -> None:
    """Not with each slice of them: that looks through all that is kept."""
    many = ledger.FORGOTTEN_AT_ONCE + 1

    def fill(db: Db) -> None:
        db.execute("INSERT INTO workspace (id, name, created) VALUES (1, 'Alps', 0)")
        db.execute("INSERT INTO member (id, type, name, created) VALUES (1, 'User', 'Ada', 0)")
        db.execute(
            "INSERT INTO device (id, workspace, member, name, created) VALUES (1, 1, 1, 'kit', 0)"
        )
        db.execute("INSERT INTO arrived VALUES (1, 0, 1, ?, ?, 0)", b"d", START)
        for _ in range(many):
            enter(db, Posting(1, 1, Message("x"), int(START), 12), now=START, grace=GRACE)

    store.once(fill)
    left = []
    for _ in range(2):
        store.once(lambda db: ledger.forget(db, before=START + 1))
        left.append(store.once(lambda db: (count(db, "item"), count(db, "arrived"))))
    assert left == [(1, 1), (0, 0)]


def test_an_item_that_goes_looks_for_its_webhook_deliveries_alone(database: str) -> None:
    """SQLite and PostgreSQL look along an index where there is one, whatever else is kept."""
    store = open_store(database)
    sql = "SELECT indexdef FROM pg_indexes WHERE tablename = 'webhook_delivery'"
    if not database.startswith("postgresql"):
        sql = "SELECT sql FROM sqlite_master WHERE tbl_name = 'webhook_delivery'"
    defined = [str(row[0]) for row in store.once(lambda db: db.execute(sql))]
    store.close()
    assert any(text.endswith("(item)") for text in defined)
