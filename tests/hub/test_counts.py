"""What an item costs the database: statements, each a round trip to PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest

from fieldagent.hub.ledger import Posting, enter
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Message
from tests.hub.field import GRACE, START


class Counted:
    """Implements `Db`."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self.skip_locked, self.for_update = db.skip_locked, db.for_update
        self.announce = db.announce
        self.statements: list[str] = []

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        self.statements.append(sql)
        return self._db.execute(sql, *parameters)


def workspace_of(db: Db, devices: int) -> None:
    db.execute("INSERT INTO workspace (id, name, created) VALUES (9, 'many', ?)", START)
    for number in range(devices + 1):
        member = 100 + number
        db.execute(
            "INSERT INTO member (id, name, type, created) VALUES (?, ?, 'User', ?)",
            member,
            f"member {number}",
            START,
        )
        db.execute("INSERT INTO membership (workspace, member) VALUES (9, ?)", member)
        if number:
            db.execute(
                "INSERT INTO device (workspace, member, name, created, next_sequence)"
                " VALUES (9, ?, ?, ?, ?)",
                member,
                f"kit {number}",
                START,
                number,
            )


@pytest.mark.parametrize("devices", [0, 1, 1_000])
def test_an_item_to_many_takes_few_statements(store: Store, devices: int) -> None:
    store.once(lambda db: workspace_of(db, devices))

    def count(db: Db) -> tuple[int, list[str]]:
        counted = Counted(db)
        posting = Posting(9, 100, Message("to all"), int(START), priority=12)
        return enter(counted, posting, now=START, grace=GRACE).item, counted.statements

    item, statements = store.once(count)
    assert len(statements) <= 3
    rows = store.once(
        lambda db: db.execute(
            "SELECT device.next_sequence - delivery.sequence, device.member - 100 - sequence"
            " FROM delivery JOIN device ON device.id = delivery.device WHERE item = ?",
            item,
        )
    )
    assert sorted(rows) == [(1, 0)] * devices
