"""Ids that grow past the integer sizes of a database or its driver."""

from __future__ import annotations

import pytest

from fieldagent.hub.contract import Bearer
from fieldagent.hub.records.ledger import Posting, add_items, confirm_all
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Message
from tests.hub.field import GRACE, START

STARTS = (1, 2**15 - 2, 2**31 - 2, 2**53 - 2, 2**62)
"""First id of each group: small ids first, as on a new hub, then ids that cross each size."""
ROUNDS = 8
"""Pushes in each group: more than psycopg needs to prepare a statement."""
DEVICES = 4


def start_items_at(db: Db, first: int) -> None:
    """Set the id of the next item."""
    if db.takes_lists:
        db.execute("SELECT setval(pg_get_serial_sequence('item', 'id'), ?, false)", first)
    else:
        db.execute("DELETE FROM sqlite_sequence WHERE name = 'item'")
        db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('item', ?)", first - 1)


def add_members(db: Db, workspace: int) -> list[int]:
    """Add members with a device each. Member, device and workspace ids start at one number."""
    db.execute(
        "INSERT INTO workspace (id, name, created) VALUES (?, ?, 0)", workspace, f"at {workspace}"
    )
    ids = [workspace + number for number in range(DEVICES)]
    for id_ in ids:
        db.execute(
            "INSERT INTO member (id, name, type, created) VALUES (?, ?, 'User', 0)", id_, str(id_)
        )
        db.execute("INSERT INTO membership (workspace, member) VALUES (?, ?)", workspace, id_)
        db.execute(
            "INSERT INTO device (id, workspace, member, name, link_token, created)"
            " VALUES (?, ?, ?, ?, ?, 0)",
            *(id_, workspace, id_, f"kit {id_}", f"token {id_}"),
        )
    return ids


@pytest.mark.parametrize("together", [1, 3], ids=["one by one", "three together"])
def test_items_are_stored_and_confirmed_past_each_integer_size(store: Store, together: int) -> None:
    def push(db: Db) -> None:
        for first in STARTS:
            ids = add_members(db, first)
            start_items_at(db, first)
            for _ in range(ROUNDS):
                text, at = Message("a text"), int(START)
                postings = [
                    Posting(first, ids[0], text, at, priority=12),
                    Posting(first, ids[1], text, at, priority=12, target=ids[2]),
                    Posting(first, ids[2], text, at, priority=12, collapse_key=2**31),
                ][:together]
                added = add_items(db, postings, now=START, grace=GRACE)
                pairs = db.execute(
                    "SELECT item, device FROM delivery WHERE item >= ? AND state = 'waiting'",
                    added[0].item,
                )
                confirm_all(db, [(item, device) for item, device in pairs], Bearer.IP, START)

    store.run_once(push)
    deliveries = store.run_once(lambda db: db.execute("SELECT item, device, state FROM delivery"))
    assert {state for *_, state in deliveries} == {"stored"}
    each = {1: DEVICES - 1, 3: 2 * (DEVICES - 1) + 1}[together]
    assert len(deliveries) == len(STARTS) * ROUNDS * each
    for first in STARTS:
        items = {item for item, *_ in deliveries if first <= item < first + ROUNDS * together}
        assert len(items) == ROUNDS * together
