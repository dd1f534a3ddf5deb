"""The hub's store on both databases: stored data, notifications, and refusals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, cast

import psycopg
import pytest
import trio
import trio.testing

from fieldagent.hub.store import schema
from fieldagent.hub.store.contract import DatabaseOptions, Db, Store, insert, make_membership
from fieldagent.hub.store.opening import open_store
from fieldagent.hub.store.schema import VERSION
from fieldagent.hub.store.shared_reads import SharedReads
from fieldagent.store.group import StoreFailed, StoreUnavailable
from fieldagent.store.sqlite import compute_application_id
from tests.postgres import new_database
from tests.processes import PATIENCE
from tests.running import running

FIRST = min(schema.STEPS, default=VERSION)
"""The version of 0.1.0."""


def add_workspace(name: str) -> Callable[[Db], int]:
    def operation(db: Db) -> int:
        db.announce("news")
        ((id_,),) = db.execute(
            "INSERT INTO workspace (name, created) VALUES (?, 0) RETURNING id", name
        )
        return int(id_)

    return operation


def list_names(db: Db) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM workspace ORDER BY name")]


async def test_failing_operation_does_not_undo_others_in_its_transaction(store: Store) -> None:
    outcomes: list[str] = []

    async def caller(name: str) -> None:
        try:
            await store.commit(add_workspace(name))
            outcomes.append(name)
        except Exception:
            outcomes.append("refused")

    async with running(store):
        async with trio.open_nursery() as callers:
            for number in range(20):
                callers.start_soon(caller, f"w{number:02}")
            callers.start_soon(caller, "w00")
        assert outcomes.count("refused") == 1
        assert len(await store.read(list_names)) == 20


async def test_grouped_commits_return_own_results_and_fail_alone(store: Store) -> None:
    runs: list[int] = []
    outcomes: dict[int, Any] = {}

    def add_numbers(db: Db, numbers: Sequence[int]) -> list[str]:
        runs.append(len(numbers))
        db.announce("news")
        for number in numbers:
            # Two rows have one name.
            db.execute("INSERT INTO workspace (name, created) VALUES (?, 0)", f"w{number % 20:02}")
        return [f"added {number}" for number in numbers]

    async def caller(number: int) -> None:
        try:
            outcomes[number] = await store.commit_together(add_numbers, number)
        except Exception:
            outcomes[number] = "refused"

    async with running(store):
        news = store.get_event("news")
        async with trio.open_nursery() as callers:
            for number in range(21):
                callers.start_soon(caller, number)
        with trio.fail_after(PATIENCE):
            await news.wait()
        refused = [number for number, outcome in outcomes.items() if outcome == "refused"]
        assert refused in ([0], [20])
        kept = {number: f"added {number}" for number in range(21) if number not in refused}
        assert outcomes == kept | dict.fromkeys(refused, "refused")
        assert len(await store.read(list_names)) == 20
        # All new ones share few runs.
        begun = len(runs)
        async with trio.open_nursery() as callers:
            for _ in range(20):
                callers.start_soon(store.commit_together, _count_runs, runs)
        assert len(runs) - begun <= 3


def test_inserted_rows_are_read_unchanged_and_found_by_list(store: Store) -> None:
    """Each way into the database keeps bytes, null, and text with all quoted characters."""
    columns = ("imei", "device", "way", "body", "reason", "received")
    rows = [
        (
            "1",
            None,
            "ip",
            bytes(range(256)),
            "a \"quoted\" 'reason' \\x41 \n \u20ac \U0001f6f0",
            1.5,
        ),
        ("2", None, "", b"", "\\u0041", 1_700_000_000.123456),
        ("3", None, "radio", b"\\x00", "{}", 0.1 + 0.2),
    ]

    def fill(db: Db) -> list[tuple[Any, ...]]:
        assert insert(db, "dead_letter", columns, []) == []
        return insert(db, "dead_letter", columns, rows, "imei")

    def found(db: Db) -> list[tuple[Any, ...]]:
        among, values = make_membership(db, ["3", "1", "9"])
        sql = f"SELECT {', '.join(columns)} FROM dead_letter WHERE imei {among} ORDER BY id"
        return [(*row[:3], bytes(row[3]), *row[4:]) for row in db.execute(sql, *values)]

    assert sorted(store.run_once(fill)) == [("1",), ("2",), ("3",)]
    assert store.run_once(found) == [rows[0], rows[2]]


def _count_runs(db: Db, runs: Sequence[list[int]]) -> Sequence[list[int]]:
    runs[0].append(0)
    return runs


def test_deferred_writes_are_executed_in_order_before_reads(store: Store) -> None:
    adds = "INSERT INTO workspace (name, created) VALUES (?, 0)"
    names = "SELECT name, created FROM workspace ORDER BY id"

    def write(db: Db) -> None:
        db.write(adds, "Alps")
        db.write(adds, "Andes")
        db.write("UPDATE worker SET proved = 0")
        assert db.execute(names) == [("Alps", 0), ("Andes", 0)]
        db.write("UPDATE workspace SET created = ? WHERE name = ?", 1, "Alps")
        db.write("INSERT INTO attempt (who, tat) VALUES (?, ?)", "somebody", 2)

    store.run_once(write)
    assert store.run_once(partial(run_sql, names)) == [("Alps", 1), ("Andes", 0)]
    assert store.run_once(partial(run_sql, "SELECT who, tat FROM attempt")) == [("somebody", 2)]


async def test_grouped_reads_return_each_result_and_fail_alone(store: Store) -> None:
    answers: dict[int, int] = {}

    def doubled(db: Db, numbers: Sequence[int]) -> list[int]:
        if 7 in numbers:
            raise ValueError("as a test")
        return [2 * number for number in numbers]

    async def ask(number: int) -> None:
        with suppress(ValueError):
            answers[number] = await store.read_together(doubled, number)

    async with running(store):
        for numbers in ([1, 2, 3], [7], [4, 5]):
            async with trio.open_nursery() as callers:
                for number in numbers:
                    callers.start_soon(ask, number)
    assert answers == {each: 2 * each for each in (1, 2, 3, 4, 5)}


async def test_cancelled_shared_read_raises_store_unavailable_for_others() -> None:
    rounds: list[Sequence[Any]] = []
    answers: list[Any] = []
    goes_on = trio.Event()

    async def read(operation: Callable[[Db], Sequence[Any]]) -> Sequence[Any]:
        rounds.append(operation(cast(Db, None)))
        await goes_on.wait()
        return rounds[-1]

    def same(db: Db, numbers: Sequence[int]) -> Sequence[int]:
        return list(numbers)

    async def ask(number: int) -> None:
        try:
            answers.append(await reads.read_shared(same, number))
        except StoreUnavailable:
            answers.append(f"{number} is to come again")

    reads = SharedReads(read)
    async with trio.open_nursery() as callers:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as leader:
                leader.start_soon(ask, 1)
                await trio.testing.wait_all_tasks_blocked()
                leader.start_soon(ask, 2)
                await trio.testing.wait_all_tasks_blocked()
                callers.start_soon(ask, 3)
                await trio.testing.wait_all_tasks_blocked()
                # 1 is being read, 2 waits for its turn and also requests 3.
                scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert answers == ["3 is to come again"]
        goes_on.set()
        await ask(4)
    assert answers == ["3 is to come again", 4]
    assert rounds == [[1], [4]]


async def test_announcement_reaches_this_and_other_processes(database: str) -> None:
    one, other = open_store(database), open_store(database)
    try:
        async with running(one), running(other):
            here, there = one.get_event("news"), other.get_event("news")
            await one.commit(add_workspace("w"))
            with trio.fail_after(PATIENCE):
                await here.wait()
                await there.wait()
    finally:
        one.close()
        other.close()


def test_administration_works_beside_a_running_store(database: str) -> None:
    one, other = open_store(database), open_store(database)
    one.run_once(add_workspace("a"))
    other.run_once(add_workspace("b"))
    assert one.run_once(list_names) == other.run_once(list_names) == ["a", "b"]
    one.close()
    other.close()


def test_deadlocked_transaction_is_retried(postgres: str) -> None:
    """PostgreSQL ends one of two transactions that wait for each other."""
    database = new_database(postgres)
    store = open_store(database)
    for name in "ab":
        store.run_once(add_workspace(name))
    begun = threading.Event()
    count = "UPDATE workspace SET posted = posted + 1 WHERE name = '{}'"

    def operation(db: Db) -> list[tuple[Any, ...]]:
        db.execute(count.format("a"))
        begun.set()
        db.execute(count.format("b"))
        return db.execute("SELECT posted FROM workspace")

    with psycopg.connect(database) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SET deadlock_timeout = '1h'")
        other.execute(count.format("b").encode())
        done = pool.submit(store.run_once, operation)
        assert begun.wait(PATIENCE)
        other.execute(count.format("a").encode())
        other.commit()
        assert done.result(PATIENCE) == [(2,), (2,)]
    store.close()


def test_several_processes_can_create_the_tables_concurrently(database: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: _open(database), range(4)))
    for store in stores:
        store.close()


def _open(database: str) -> Store:
    store = open_store(database)
    store.run_once(list_names)
    return store


def test_database_of_a_later_version_is_rejected(database: str) -> None:
    store = open_store(database)
    store.run_once(add_workspace("kept"))
    set_version(store, database, 99)
    store.close()
    with pytest.raises(StoreUnavailable, match="it has version 99, this program knows"):
        open_store(database)


def set_version(store: Store, database: str, version: int) -> None:
    if database.startswith("postgresql://"):
        store.run_once(partial(run_sql, f"UPDATE fieldagent_schema SET version = {version}"))
    else:
        store.run_once(partial(run_sql, f"PRAGMA user_version = {version}"))
        store.run_once(
            partial(run_sql, f"PRAGMA application_id = {compute_application_id(version)}")
        )


def test_database_from_before_the_first_release_is_rejected(database: str) -> None:
    store = open_store(database)
    store.run_once(add_workspace("kept"))
    set_version(store, database, FIRST - 1)
    store.close()
    with pytest.raises(StoreUnavailable, match=r"before its first release .*, and is not changed"):
        open_store(database)


def test_migration_step_upgrades_the_database_to_the_next_version(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(database)
    store.run_once(add_workspace("kept"))
    store.close()
    step = "ALTER TABLE workspace ADD COLUMN later {real} NOT NULL DEFAULT 5;"
    monkeypatch.setattr(schema, "STEPS", {**schema.STEPS, VERSION: step})
    monkeypatch.setattr(schema, "VERSION", VERSION + 1)
    if database.startswith("postgresql://"):
        needs = (
            f"its tables are of version {VERSION}, this program needs version {VERSION + 1}. Stop"
        )
        with pytest.raises(StoreUnavailable, match=needs):
            open_store(database, DatabaseOptions(upgrade=False))
    for _ in range(2):
        store = open_store(database)
        assert store.run_once(partial(run_sql, "SELECT name, later FROM workspace")) == [
            ("kept", 5)
        ]
        store.close()
    monkeypatch.undo()
    with pytest.raises(StoreUnavailable, match=f"it has version {VERSION + 1}, this program"):
        open_store(database)


def run_sql(sql: str, db: Db) -> list[tuple[Any, ...]]:
    return db.execute(sql)


@pytest.mark.parametrize(
    ("database", "why"),
    [
        (
            "postgresql://127.0.0.1:1/none",
            "(?s)PostgreSQL at 127.0.0.1/none cannot be used: .*start it, or correct `database`",
        ),
        (
            "/dev/null/hub.sqlite3",
            "cannot be used: .*see that this program may write|cannot be used: .*See",
        ),
    ],
)
def test_unusable_database_is_reported_with_a_remedy(database: str, why: str) -> None:
    with pytest.raises((StoreFailed, StoreUnavailable), match=why):
        open_store(database)
