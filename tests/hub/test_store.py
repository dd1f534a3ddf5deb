"""The hub's store itself, on both databases: what is kept, told and refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, cast

import psycopg
import pytest
import trio
import trio.testing

from fieldagent.hub.access import secret, sessions
from fieldagent.hub.records import audit
from fieldagent.hub.store.contract import Db, Store, insert, one_of
from fieldagent.hub.store.opening import open_store
from fieldagent.hub.store.shared_reads import SharedReads
from fieldagent.store.group import StoreFailed, StoreUnavailable
from fieldagent.store.version_mark import mark_of
from tests.processes import PATIENCE
from tests.running import running


def add(name: str) -> Callable[[Db], int]:
    def operation(db: Db) -> int:
        db.announce("news")
        ((id_,),) = db.execute(
            "INSERT INTO workspace (name, created) VALUES (?, 0) RETURNING id", name
        )
        return int(id_)

    return operation


def names(db: Db) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM workspace ORDER BY name")]


async def test_callers_share_transactions_and_one_that_fails_fails_alone(store: Store) -> None:
    outcomes: list[str] = []

    async def caller(name: str) -> None:
        try:
            await store.commit(add(name))
            outcomes.append(name)
        except Exception:
            outcomes.append("refused")

    async with running(store):
        async with trio.open_nursery() as callers:
            for number in range(20):
                callers.start_soon(caller, f"w{number:02}")
            callers.start_soon(caller, "w00")
        assert outcomes.count("refused") == 1
        assert len(await store.read(names)) == 20


async def test_what_is_committed_together_is_each_ones_own_and_fails_alone(store: Store) -> None:
    runs: list[int] = []
    outcomes: dict[int, Any] = {}

    def enter(db: Db, numbers: Sequence[int]) -> list[str]:
        runs.append(len(numbers))
        db.announce("news")
        for number in numbers:
            # Two have one name.
            db.execute("INSERT INTO workspace (name, created) VALUES (?, 0)", f"w{number % 20:02}")
        return [f"entered {number}" for number in numbers]

    async def caller(number: int) -> None:
        try:
            outcomes[number] = await store.commit_together(enter, number)
        except Exception:
            outcomes[number] = "refused"

    async with running(store):
        news = store.heard("news")
        async with trio.open_nursery() as callers:
            for number in range(21):
                callers.start_soon(caller, number)
        with trio.fail_after(PATIENCE):
            await news.wait()
        refused = [number for number, outcome in outcomes.items() if outcome == "refused"]
        assert refused in ([0], [20])
        kept = {number: f"entered {number}" for number in range(21) if number not in refused}
        assert outcomes == kept | dict.fromkeys(refused, "refused")
        assert len(await store.read(names)) == 20
        # All fresh ones share few runs.
        begun = len(runs)
        async with trio.open_nursery() as callers:
            for _ in range(20):
                callers.start_soon(store.commit_together, _count_runs, runs)
        assert len(runs) - begun <= 3


def test_rows_are_found_as_they_were_inserted_and_by_one_of_many(store: Store) -> None:
    """Whichever way they go to the database: bytes, no value, and text with all that is quoted."""
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
        among, values = one_of(db, ["3", "1", "9"])
        sql = f"SELECT {', '.join(columns)} FROM dead_letter WHERE imei {among} ORDER BY id"
        return [(*row[:3], bytes(row[3]), *row[4:]) for row in db.execute(sql, *values)]

    assert sorted(store.once(fill)) == [("1",), ("2",), ("3",)]
    assert store.once(found) == [rows[0], rows[2]]


def _count_runs(db: Db, runs: Sequence[list[int]]) -> Sequence[list[int]]:
    runs[0].append(0)
    return runs


def test_what_is_written_is_there_for_what_follows_and_in_its_order(store: Store) -> None:
    adds = "INSERT INTO workspace (name, created) VALUES (?, 0)"
    names = "SELECT name, created FROM workspace ORDER BY id"

    def write(db: Db) -> None:
        db.write(adds, "Alps")
        db.write(adds, "Andes")
        db.write("UPDATE worker SET proved = 0")
        assert db.execute(names) == [("Alps", 0), ("Andes", 0)]
        db.write("UPDATE workspace SET created = ? WHERE name = ?", 1, "Alps")
        db.write("INSERT INTO attempt (who, tat) VALUES (?, ?)", "somebody", 2)

    store.once(write)
    assert store.once(partial(run, names)) == [("Alps", 1), ("Andes", 0)]
    assert store.once(partial(run, "SELECT who, tat FROM attempt")) == [("somebody", 2)]


async def test_what_is_read_together_is_each_ones_own(store: Store) -> None:
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


async def test_who_asks_for_others_too_and_is_cancelled_leaves_them_an_answer() -> None:
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
            answers.append(await reads.ask(same, number))
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
                # 1 is read, 2 waits for its turn, and asks for 3 as well.
                scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert answers == ["3 is to come again"]
        goes_on.set()
        await ask(4)
    assert answers == ["3 is to come again", 4]
    assert rounds == [[1], [4]]


async def test_an_announcement_reaches_this_process_and_another(database: str) -> None:
    one, other = open_store(database), open_store(database)
    try:
        async with running(one), running(other):
            here, there = one.heard("news"), other.heard("news")
            await one.commit(add("w"))
            with trio.fail_after(PATIENCE):
                await here.wait()
                await there.wait()
    finally:
        one.close()
        other.close()


def test_administration_works_beside_a_running_store(database: str) -> None:
    one, other = open_store(database), open_store(database)
    one.once(add("a"))
    other.once(add("b"))
    assert one.once(names) == other.once(names) == ["a", "b"]
    one.close()
    other.close()


def test_several_processes_may_make_the_tables_at_once(database: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: _open(database), range(4)))
    for store in stores:
        store.close()


def _open(database: str) -> Store:
    store = open_store(database)
    store.once(names)
    return store


def test_a_database_of_a_later_version_is_refused_and_left_alone(database: str) -> None:
    store = open_store(database)
    store.once(add("kept"))
    if database.startswith("postgresql://"):
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("UPDATE fieldagent_schema SET version = 99")
    else:
        store.once(partial(run, "PRAGMA user_version = 99"))
        store.once(partial(run, f"PRAGMA application_id = {mark_of(99)}"))
    store.close()
    with pytest.raises(StoreUnavailable, match="it has version 99, this program knows"):
        open_store(database)


OF_VERSION_1 = """
DROP TABLE lease;
DROP TABLE process;
CREATE TABLE lease (device BIGINT PRIMARY KEY, hub TEXT NOT NULL, until REAL NOT NULL);
INSERT INTO lease VALUES (1, 'a', 0);
DROP INDEX webhook_delivery_of_item;
DROP TABLE ring_alert;
DROP TABLE dead_letter;
DROP TABLE dead_letter_tally;
DROP TABLE contact;
DROP TABLE sos_event;
DROP TABLE check_in;
ALTER TABLE receipt DROP COLUMN person;
ALTER TABLE webhook DROP COLUMN after;
DROP TABLE sos;
DROP INDEX item_to_read;
DROP INDEX item_of_workspace;
DROP INDEX item_of_sender;
DROP INDEX item_of_kind;
DROP INDEX item_sos;
DROP INDEX item_pushed;
DROP INDEX audit_of_workspace;
ALTER TABLE audit DROP COLUMN workspace;
ALTER TABLE member DROP COLUMN password_until;
DROP INDEX device_of_workspace;
ALTER TABLE membership DROP COLUMN role;
ALTER TABLE item DROP COLUMN kind;
ALTER TABLE item DROP COLUMN words;
ALTER TABLE device DROP COLUMN key_trouble;
ALTER TABLE item DROP COLUMN estimate;
ALTER TABLE receipt DROP COLUMN digest;
ALTER TABLE arrived DROP COLUMN sos;
ALTER TABLE device DROP COLUMN journal;
ALTER TABLE device DROP COLUMN packs_text;
ALTER TABLE device DROP COLUMN relay;
ALTER TABLE item DROP COLUMN unauthenticated;
DROP TABLE attempt;
DROP TABLE idempotency;
CREATE TABLE attempt (address TEXT PRIMARY KEY, tat REAL NOT NULL);
CREATE TABLE idempotency (credential BIGINT NOT NULL, key TEXT NOT NULL, digest BYTEA NOT NULL,
    at REAL NOT NULL, PRIMARY KEY (credential, key));
INSERT INTO attempt VALUES ('198.51.100.7', 7);
INSERT INTO workspace (id, name, created) VALUES (1, 'Alps', 0), (2, 'Andes', 0);
INSERT INTO member (id, type, name, created) VALUES (1, 'User', 'Ada', 0), (2, 'User', 'Ben', 0),
    (3, 'User', 'Cleo', 0);
INSERT INTO membership (workspace, member) VALUES (1, 1), (1, 2), (2, 3);
INSERT INTO credential (id, kind, workspace, lookup, name, created)
    VALUES (1, 'key', 1, 'x', 'x', 0);
INSERT INTO idempotency VALUES (1, 'a1', 'd', 5);
"""


def brought_up(database: str, version: int, statements: str) -> Store:
    """A database that these made one of an earlier version, opened anew."""
    store = open_store(database)
    for statement in statements.split(";")[:-1]:
        store.once(partial(run, statement))
    if database.startswith("postgresql://"):
        store.once(partial(run, f"UPDATE fieldagent_schema SET version = {version}"))
    else:
        store.once(partial(run, f"PRAGMA user_version = {version}"))
        # As programs left it that knew no mark.
        store.once(partial(run, "PRAGMA application_id = 0"))
    store.close()
    return open_store(database)


def test_a_database_of_version_1_is_brought_up_and_keeps_what_it_knew(database: str) -> None:
    store = brought_up(database, 1, OF_VERSION_14 + OF_VERSION_1)
    assert store.once(partial(run, "SELECT who, tat FROM attempt")) == [("198.51.100.7", 7)]
    known = store.once(partial(run, "SELECT credential, member, key, at FROM idempotency"))
    assert sorted(known) == [(1, 1, "a1", 5), (1, 2, "a1", 5)]
    for later in ("SELECT * FROM dead_letter", "SELECT estimate FROM item", "SELECT * FROM lease"):
        assert store.once(partial(run, later)) == []
    store.close()


OF_VERSION_37 = """
DROP INDEX receipt_sent;
DROP INDEX item_of_target;
"""

OF_VERSION_36 = f"""
{OF_VERSION_37}
DROP TABLE kit_condition;
DROP TABLE mqtt_item;
DROP TABLE mqtt_command;
ALTER TABLE bridge DROP COLUMN happened;
DROP TABLE tak_invitation;
DROP TABLE radio_key;
DROP TABLE radio_key_kit;
ALTER TABLE command DROP COLUMN carrier;
ALTER TABLE command DROP COLUMN journal;
ALTER TABLE command DROP COLUMN carried;
DROP TABLE fence_standing;
DROP TABLE fence_kit;
DROP TABLE fence;
DROP TABLE route;
ALTER TABLE workspace DROP COLUMN quiet;
ALTER TABLE alarm_contact DROP COLUMN quiet;
ALTER TABLE alarm_message DROP COLUMN held;
ALTER TABLE alarm_contact DROP COLUMN language;
"""

OF_VERSION_35 = f"""
{OF_VERSION_36}
ALTER TABLE device DROP COLUMN revoked;
ALTER TABLE device DROP COLUMN revoked_why;
ALTER TABLE item DROP COLUMN revoked;
DROP TABLE rebuild;
DROP INDEX item_restored;
ALTER TABLE item DROP COLUMN restored;
DROP INDEX delivery_due;
CREATE INDEX delivery_due ON delivery (device, satellite_from) WHERE state = 'waiting';
DROP INDEX delivery_at_once;
ALTER TABLE delivery DROP COLUMN from_log;
ALTER TABLE device DROP COLUMN place;
DROP INDEX item_place;
DROP INDEX item_place_expires;
ALTER TABLE item DROP COLUMN place;
ALTER TABLE workspace DROP COLUMN posted;
ALTER TABLE sos DROP COLUMN asked;
DROP TABLE tracker;
DROP TABLE shift;
DROP TABLE watch_hours;
DROP TABLE operator_balance;
ALTER TABLE webhook DROP COLUMN steps;
ALTER TABLE webhook_delivery DROP COLUMN steps;
ALTER TABLE webhook_delivery DROP COLUMN told;
ALTER TABLE webhook_delivery DROP COLUMN telling;
DROP TABLE command;
DROP TABLE tak_alert;
DROP TABLE tak_event;
DROP TABLE tak_person;
DROP TABLE bridge;
ALTER TABLE delivery DROP COLUMN unpaid;
DROP TABLE earshot;
DROP TABLE parcel;
DROP TABLE tak_certificate;
"""

OF_VERSION_34 = f"""
{OF_VERSION_35}
DROP TABLE sos_carrier;
ALTER TABLE receipt DROP COLUMN about;
"""

OF_VERSION_33 = f"""
{OF_VERSION_34}
ALTER TABLE alarm_contact RENAME COLUMN wait TO after;
ALTER TABLE alarm_contact RENAME COLUMN pause TO every;
INSERT INTO workspace (id, name, created) VALUES (1, 'Alps', 0);
INSERT INTO alarm_contact (workspace, kind, name, address, after, every, created)
    VALUES (1, 'email', 'Duty', 'duty@example.org', 10, 5, 0);
"""


def test_minutes_of_version_33_are_seconds(database: str) -> None:
    store = brought_up(database, 33, OF_VERSION_33)
    assert store.once(partial(run, "SELECT wait, pause FROM alarm_contact")) == [(600, 300)]
    store.close()


OF_VERSION_18 = f"""
{OF_VERSION_34}
DROP TABLE operator_count;
DROP TABLE mo_session;
DROP TABLE mt_copy;
ALTER TABLE mobile_terminated DROP COLUMN receipts;
ALTER TABLE delivery DROP COLUMN again;
ALTER TABLE receipt DROP COLUMN again;
DROP TABLE operator_message;
DROP TABLE operator_fetched;
DROP TABLE handed_over;
ALTER TABLE device DROP COLUMN modem;
ALTER TABLE device DROP COLUMN thing;
DROP TABLE outward;
DROP TABLE team_member;
DROP TABLE team;
DROP TABLE handle;
DROP TABLE reached;
ALTER TABLE workspace DROP COLUMN directory;
ALTER TABLE item DROP COLUMN addressee;
ALTER TABLE item DROP COLUMN team;
ALTER TABLE item DROP COLUMN asks;
ALTER TABLE receipt DROP COLUMN rung;
ALTER TABLE webhook DROP COLUMN batch;
ALTER TABLE webhook DROP COLUMN quiet_until;
ALTER TABLE webhook_delivery DROP COLUMN batch;
DROP TABLE worker;
ALTER TABLE webhook_delivery DROP COLUMN claimed_by;
ALTER TABLE mobile_terminated DROP COLUMN claimed_by;
DROP TABLE alarm_message;
DROP TABLE alarm_contact;
DROP TABLE alarm_link;
DROP TABLE contact_answer;
DROP TABLE kit_sms;
DROP TABLE console_stream;
ALTER TABLE sos DROP COLUMN seen_as;
ALTER TABLE sos DROP COLUMN unreached;
ALTER TABLE sos_event DROP COLUMN name;
DROP TABLE operator_trouble;
DROP TABLE imei_claim;
DROP TABLE passkey;
DROP TABLE signing_key;
ALTER TABLE mobile_terminated DROP COLUMN trouble;
ALTER TABLE mobile_terminated DROP COLUMN code;
ALTER TABLE mobile_terminated DROP COLUMN reason;
DROP INDEX sos_by_number;
ALTER TABLE sos DROP COLUMN number;
ALTER TABLE sos RENAME COLUMN seen TO acknowledged;
ALTER TABLE sos RENAME COLUMN seen_by TO acknowledged_by;
ALTER TABLE receipt DROP COLUMN says;
ALTER TABLE receipt DROP COLUMN by_name;
ALTER TABLE receipt DROP COLUMN text;
ALTER TABLE receipt ADD COLUMN person INTEGER NOT NULL DEFAULT 0;
DROP INDEX item_by_incident;
ALTER TABLE item DROP COLUMN incident;
"""
OF_VERSION_14 = (
    OF_VERSION_18
    + """
ALTER TABLE contact DROP COLUMN modems;
ALTER TABLE contact DROP COLUMN modems_at;
DROP TABLE settings_offer;
DROP TABLE update_offer_kit;
DROP TABLE update_offer;
ALTER TABLE contact DROP COLUMN installed;
DROP INDEX delivery_waiting;
DROP INDEX delivery_expires;
ALTER TABLE delivery DROP COLUMN rank;
ALTER TABLE delivery DROP COLUMN expires;
CREATE INDEX delivery_waiting ON delivery (device, item);
CREATE INDEX item_expires ON item (expires);
DROP INDEX delivery_due;
CREATE INDEX delivery_due ON delivery (satellite_from, device);
DROP INDEX webhook_delivery_dead;
DROP INDEX arrived_at;
DROP INDEX idempotency_at;
DROP INDEX slice_at;
DROP INDEX receipt_at;
DROP INDEX webhook_delivery_waiting;
ALTER TABLE webhook_delivery DROP COLUMN sender;
CREATE INDEX webhook_delivery_waiting ON webhook_delivery (webhook, item);
"""
)

OF_VERSION_10 = (
    OF_VERSION_14
    + """
ALTER TABLE contact DROP COLUMN last_update;
DROP INDEX audit_of_workspace;
ALTER TABLE audit DROP COLUMN workspace;
ALTER TABLE member DROP COLUMN password_until;
ALTER TABLE device DROP COLUMN packs_text;
CREATE TABLE session (lookup TEXT PRIMARY KEY, member BIGINT NOT NULL, workspace BIGINT NOT NULL,
    expires REAL NOT NULL);
INSERT INTO workspace (id, name, created) VALUES (1, 'Alps', 0);
INSERT INTO member (id, type, name, created) VALUES (1, 'User', 'Ada', 0);
INSERT INTO membership (workspace, member) VALUES (1, 1);
INSERT INTO session VALUES ('{}', 1, 1, 90000);
"""
)


def test_who_had_signed_in_at_the_console_stays_so(database: str) -> None:
    store = brought_up(database, 10, OF_VERSION_10.format(secret.lookup("session_x")))
    found = store.once(lambda db: sessions.caller(db, "session_x", 89_999))
    assert found is not None and (found.member, found.workspace, found.may_push) == (1, 1, True)
    assert store.once(lambda db: sessions.caller(db, "session_x", 90_000)) is None
    store.close()


REFUSED = """
INSERT INTO workspace (id, name, created) VALUES (1, 'Alps', 0);
INSERT INTO member (id, type, name, created) VALUES (1, 'User', 'Ada', 0);
INSERT INTO device (id, workspace, member, name, created) VALUES (1, 1, 1, 'kit', 0);
INSERT INTO item (id, request_id, workspace, sender, body, priority, accepted)
    VALUES (1, 'a', 1, 1, '', 1, 0), (2, 'b', 1, 1, '', 1, 0);
INSERT INTO delivery (item, device, sequence, state, reason)
    VALUES (1, 1, 1, 'waiting', 'the gateway does not know the IMEI'), (2, 1, 2, 'waiting', '');
"""


def test_what_an_operator_refused_before_goes_over_satellite_again(database: str) -> None:
    store = brought_up(database, 18, OF_VERSION_18 + REFUSED)
    found = store.once(partial(run, "SELECT satellite_from, reason FROM delivery ORDER BY item"))
    assert found == [(0, ""), (None, "")]
    store.close()


OF_VERSION_13 = """
DROP INDEX audit_of_workspace;
ALTER TABLE audit DROP COLUMN workspace;
ALTER TABLE member DROP COLUMN password_until;
INSERT INTO workspace (id, name, created) VALUES (5, 'Alps', 0);
INSERT INTO audit (at, actor, action) VALUES (1, '7', 'push'), (2, 'administration', 'key add');
"""


@pytest.mark.parametrize(
    ("more", "whose"),
    [
        ("", 5),
        ("INSERT INTO workspace (id, name, created) VALUES (6, 'Andes', 0);", None),
        # Some may be of the one that was deleted.
        ("INSERT INTO audit (at, actor, action) VALUES (3, 'x', 'workspace delete');", None),
    ],
)
def test_the_audit_of_before_is_of_the_one_workspace_or_of_none(
    database: str, more: str, whose: int | None
) -> None:
    store = brought_up(database, 13, OF_VERSION_14 + OF_VERSION_13 + more)
    assert {row["workspace"] for row in store.once(lambda db: audit.latest(db, 9))} == {whose}
    listed = store.once(lambda db: audit.listing(db, 5, 9, 9)[0])
    assert [each["action"] for each in listed] == (["key add"] if whose else [])
    store.close()


def run(sql: str, db: Db) -> list[tuple[Any, ...]]:
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
def test_what_cannot_be_opened_says_what_to_do(database: str, why: str) -> None:
    with pytest.raises((StoreFailed, StoreUnavailable), match=why):
        open_store(database)
