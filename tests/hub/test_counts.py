"""The database cost of an item: the number of statements, each of which is a round trip to
PostgreSQL.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from fieldagent.http.problem import Problem
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.access.push import Push
from fieldagent.hub.api.push_api import HubApi, PushRequest
from fieldagent.hub.records.ledger import Posting, add_item
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import Message
from tests.hub.field import GRACE, START
from tests.postgres import new_database


class Counted:
    """Implements `Db`."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self.skip_locked, self.for_update = db.skip_locked, db.for_update
        self.worker, self.living_workers = db.worker, db.living_workers
        self.takes_lists = db.takes_lists
        self.announce = db.announce
        self.statements: list[str] = []

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        self.statements.append(sql)
        return self._db.execute(sql, *parameters)

    def write(self, sql: str, *parameters: Any) -> None:
        self.statements.append(sql)
        self._db.write(sql, *parameters)


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
                "INSERT INTO device (workspace, member, name, link_token, created, next_sequence)"
                " VALUES (9, ?, ?, ?, ?, ?)",
                member,
                f"kit {number}",
                f"token {number}",
                START,
                number,
            )


@pytest.mark.parametrize("devices", [0, 1, 1_000])
def test_item_to_many_devices_takes_few_statements(store: Store, devices: int) -> None:
    store.run_once(lambda db: workspace_of(db, devices))

    def count(db: Db) -> tuple[int, list[str]]:
        counted = Counted(db)
        posting = Posting(9, 100, Message("to all"), int(START), priority=12)
        return add_item(counted, posting, now=START, grace=GRACE).item, counted.statements

    item, statements = store.run_once(count)
    assert len(statements) <= 3
    rows = store.run_once(
        lambda db: db.execute(
            "SELECT device.next_sequence - delivery.sequence, device.member - 100 - sequence"
            " FROM delivery JOIN device ON device.id = delivery.device WHERE item = ?",
            item,
        )
    )
    assert sorted(rows) == [(1, 0)] * devices


class Undone(Exception):
    """Error that rolls back a test's changes."""


def make_caller(member: int = 100, *, key: int = 1, type_: str = "Integration") -> Caller:
    scopes = frozenset({"message", "location"})
    return Caller(key, "a key", 9, scopes, member, type_, "name", "member", True)


def add_keys(db: Db) -> None:
    for number, burst in ((1, 1_000), (2, 2)):
        db.execute(
            "INSERT INTO credential (id, kind, workspace, lookup, name, per_minute, burst, created)"
            " VALUES (?, 'key', 9, ?, ?, 60, ?, ?)",
            number,
            f"lookup {number}",
            f"key {number}",
            burst,
            START,
        )


def make_push(text: str, source: int = 100, **members: Any) -> Push:
    priority = members.pop("priority", 12)
    return Push(Message(text), source, members.pop("workspace", 9), priority=priority, **members)


MIXED = [
    PushRequest(make_caller(), make_push("to all", target=None), None),
    PushRequest(make_caller(), make_push("to one", target=101), None),
    PushRequest(make_caller(), make_push("old", target=None, collapse_key=5), "first"),
    PushRequest(make_caller(101, type_="User"), make_push("of one", source=101, target=None), None),
    PushRequest(make_caller(), make_push("newer", target=None, collapse_key=5), None),
    PushRequest(make_caller(), make_push("old", target=None, collapse_key=5), "first"),
    PushRequest(make_caller(), make_push("another", target=None), "first"),
    PushRequest(make_caller(101), make_push("another's", target=102, collapse_key=5), "first"),
    PushRequest(make_caller(), make_push("newest", target=101, collapse_key=5), None),
    PushRequest(make_caller(), make_push("nobody", source=77, target=101), None),
    PushRequest(make_caller(101, type_="User"), make_push("as another", target=101), None),
    PushRequest(make_caller(), make_push("elsewhere", target=101, workspace=1), None),
    PushRequest(make_caller(), Problem(422, "as a test"), None),
    *[
        PushRequest(make_caller(key=2), make_push(f"fast {number}", target=103), None)
        for number in range(4)
    ],
    PushRequest(make_caller(), make_push("help", target=101, priority=100), None),
]


def decide_groups(db: Db, groups: list[list[PushRequest]], statements: list[str]) -> Any:
    """Return the answers to the callers, and the content of the tables, with items by
    their order.
    """
    api: Any = HubApi(
        cast(Any, None), cast(Any, None), clock=lambda: START, grace=GRACE, time_to_live=86_400
    )
    answers = []
    for group in groups:
        counted = Counted(db)
        answers += api._decide(counted, group)
        statements += counted.statements
    items = db.execute("SELECT id, request_id, target, collapse_key, expires FROM item ORDER BY id")
    place = {item: number for number, (item, *_) in enumerate(items)}
    requests = {request: place[item] for item, request, *_ in items}
    deliveries = db.execute(
        "SELECT item, device, sequence, state, satellite_from, reason FROM delivery"
    )
    remembered = db.execute("SELECT credential, member, key, request_id FROM idempotency")
    lines = db.execute("SELECT actor, action, detail FROM audit ORDER BY id")
    return (
        [each.status if isinstance(each, Problem) else requests[each] for each in answers],
        [tuple(row) for _, _, *row in items],
        sorted((place[item], *row) for item, *row in deliveries),
        sorted((*row, requests[request]) for *row, request in remembered),
        sorted((actor, action, detail.partition(",")[2]) for actor, action, detail in lines),
        db.execute("SELECT id, next_sequence FROM device ORDER BY id"),
        db.execute("SELECT id, tat FROM credential ORDER BY id"),
    )


def run_groups(store: Store, groups: list[list[PushRequest]]) -> tuple[Any, int]:
    results: list[Any] = []
    statements: list[str] = []

    def try_out(db: Db) -> None:
        workspace_of(db, 4)
        add_keys(db)
        results.append(decide_groups(db, groups, statements))
        raise Undone

    with pytest.raises(Undone):
        store.run_once(try_out)
    ((*rest, devices, tats),) = results
    # A database does not assign a number twice.
    first = min(device for device, _ in devices)
    rest[2] = [(item, device - first, *row) for item, device, *row in rest[2]]
    return ([*rest, [number for _, number in devices], tats], len(statements))


def test_grouped_pushes_have_the_same_result_as_single_pushes(store: Store) -> None:
    alone, many = run_groups(store, [[each] for each in MIXED])
    together, few = run_groups(store, [MIXED])
    assert together == alone
    assert few < many / 4


@pytest.mark.parametrize("count", [1, 64])
def test_group_of_pushes_takes_few_statements(store: Store, count: int) -> None:
    group = [
        PushRequest(
            make_caller(), make_push(f"number {n}", target=None, collapse_key=n), f"key {n}"
        )
        for n in range(count)
    ]
    _, statements = run_groups(store, [group])
    assert statements <= 11


def test_postgresql_reuses_the_plans_of_a_single_push(postgres: str) -> None:
    """PostgreSQL plans the first executions for their values. Then it keeps one plan, unless other
    plans are much better (PostgreSQL's manual, PREPARE).
    """
    store = open_store(new_database(postgres))

    def plans(db: Db) -> list[tuple[Any, ...]]:
        workspace_of(db, 3)
        add_keys(db)
        api: Any = HubApi(
            cast(Any, None), cast(Any, None), clock=lambda: START, grace=GRACE, time_to_live=86_400
        )
        for number in range(30):
            answers = api._decide(
                db, [PushRequest(make_caller(), make_push(f"{number}", target=101), None)]
            )
            assert isinstance(answers[0], str)
        return db.execute(
            "SELECT statement, custom_plans, generic_plans FROM pg_prepared_statements"
        )

    try:
        rows = store.run_once(plans)
    finally:
        store.close()
    assert len(rows) >= 5
    assert [row for row in rows if row[2] < row[1]] == []
