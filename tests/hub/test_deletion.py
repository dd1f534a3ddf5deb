"""Data that an operator must delete disappears from all tables while a hub runs, on both
engines.
"""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fieldagent.hub.access import directory
from fieldagent.hub.access.subject import Subject, find_subject, list_devices
from fieldagent.hub.administration import deletion
from fieldagent.hub.contract import Bearer
from fieldagent.hub.records import contact, sos
from fieldagent.hub.records.ledger import confirm
from fieldagent.hub.store.contract import Db, Store, insert
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry
from tests.hub.field import Field
from tests.hub.field import field_of as field
from tests.processes import MODULE, PATIENCE, Agent, administer, hub, until


def kit_of(home: Path, name: str, token: str, address: str) -> Agent:
    (home / name).mkdir()
    settings = {"satellite-port": None, "hub-token": token, "hub-address": address}
    return Agent(home / name, settings)


@pytest.mark.full
def test_user_is_deleted_with_all_personal_data(database: str, tmp_path: Path) -> None:
    administer(database, "init", "Alps")
    for name in ("Ada", "Ben"):
        administer(database, "user", "add", name, "--email", f"{name}@example.org")
    tokens = {
        name: administer(database, "device", "add", f"kit of {name}", "--user", name)["hub-token"]
        for name in ("Ada", "Ben")
    }
    with ExitStack() as stack:
        running = stack.enter_context(hub(tmp_path, {"database": database}))
        adas, bens = (
            stack.enter_context(kit_of(tmp_path, name, token, running.address))
            for name, token in tokens.items()
        )
        for kit in (adas, bens):
            kit.expect("linked to the hub")
        assert adas.post("the word of hers").body["status"] == "Delivered"
        until(lambda: list_inbound(bens))
        assert read_identities(tmp_path / "Ben") == {2: "Ada"}

        asked = [*MODULE, "hub", "user", "delete", "Ada", "--database", database]
        result = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE)
        assert result.returncode == 65
        assert "kit of Ada" in result.stdout
        assert "items that kits and webhooks have received" in result.stdout
        assert "--yes" in result.stderr
        assert len(administer(database, "user", "list")) == 3

        plan = administer(database, "user", "delete", "Ada", "--yes")
        assert (plan["deleted"], plan["items"]) == (True, 1)
        adas.expect("the hub ended the link for good")
        assert [each["name"] for each in administer(database, "user", "list")] == ["push", "Ben"]
        assert "Ada" not in str(administer(database, "audit"))
        held = dump_all_rows(database)
        for word in ("Ada", "the word of hers"):
            assert word not in held, word
        assert "ben@example.org" in held

        # The next message to Ben also reports that number 2 has no name.
        administer(database, "user", "add", "Cleo")
        token = administer(database, "device", "add", "kit of Cleo", "--user", "Cleo")["hub-token"]
        cleos = stack.enter_context(kit_of(tmp_path, "Cleo", token, running.address))
        assert cleos.post("and then").body["status"] == "Delivered"
        until(lambda: len(list_inbound(bens)) == 2)
        assert read_identities(tmp_path / "Ben") == {2: "", 4: "Cleo"}
        assert running.stop() == 0
    assert [line for line in running.lines if "Traceback" in line or "mistake" in line] == []


def list_inbound(kit: Agent) -> list[Any]:
    listed: list[Any] = kit.call("GET", "/api/inbound").body["payloads"]
    return listed


def read_identities(home: Path) -> dict[int, str]:
    with closing(sqlite3.connect(home / "state" / "journal.sqlite3")) as look:
        return dict(look.execute("SELECT origin, name FROM identity WHERE origin > 0"))


def dump_all_rows(database: str) -> str:
    """Return all rows of all tables as one text."""
    store = open_store(database)
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    if not database.startswith("postgresql"):
        tables = "SELECT name FROM sqlite_master WHERE type = 'table'"

    def read(db: Db) -> str:
        lines = []
        for (table,) in db.execute(tables):
            for row in db.execute(f"SELECT * FROM {table}"):
                values = (bytes(v).decode("latin-1") if is_bytes(v) else str(v) for v in row)
                lines.append(" ".join(values))
        return "\n".join(lines)

    try:
        return store.run_once(read)
    finally:
        store.close()


def is_bytes(value: Any) -> bool:
    return isinstance(value, bytes | bytearray | memoryview)


@pytest.mark.full
def test_disabled_user_loses_links_until_enabled_again(database: str, tmp_path: Path) -> None:
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    add = ("device", "add", "--user", "Ada")
    token = administer(database, *add, "kit")["hub-token"]
    administer(database, *add, "old kit")
    administer(database, "device", "disable", "old kit")
    with ExitStack() as stack:
        running = stack.enter_context(hub(tmp_path, {"database": database}))
        kit = stack.enter_context(kit_of(tmp_path, "kit", token, running.address))
        kit.expect("linked to the hub")
        administer(database, "user", "disable", "Ada")
        kit.expect("the hub ended the link for good")
        with pytest.raises(AssertionError, match=r"user of this device is disabled.*user enable 2"):
            administer(database, "device", "enable", "kit")
        administer(database, "user", "enable", "Ada")
        kit.expect("linked to the hub")
    listed = administer(database, "device", "list")
    assert [each["disabled"] is None for each in listed] == [True, False]


SOME = 20
MANY = 2 * SOME + 1


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "ROWS_PER_STEP", SOME)


async def add_many_items(alps: Field) -> None:
    """Let Ada push to all, and her device send."""
    for number in range(MANY):
        await alps.push(Message(f"note {number}"))
    rows = [(1, 0, number, b"d", alps.now) for number in range(MANY)]
    columns = ("device", "origin", "sequence", "digest", "at")
    await alps.store.commit(lambda db: insert(db, "arrived", columns, rows))


async def run_deletion(alps: Field, gone: Subject) -> int:
    """Delete like the command, and return the number of transactions."""
    store, steps = alps.store, 2
    await store.commit(lambda db: deletion.begin_deletion(db, gone, alps.now))
    place: int | None = 0
    while place is not None:
        step = partial(deletion.delete_items, subject=gone, after=place)
        place, steps = await store.commit(step), steps + 1
    for device in await store.commit(lambda db: list_devices(db, gone)):
        while await store.commit(partial(deletion.empty_device, device=device)):
            steps += 1
    await store.commit(lambda db: deletion.delete_remaining_rows(db, gone, alps.now))
    return steps


async def count_rows(alps: Field, *tables: str) -> list[int]:
    return [(await alps.rows(f"SELECT count(*) FROM {table}"))[0][0] for table in tables]


async def test_user_with_many_items_is_deleted_in_slices(store: Store) -> None:
    async with field(store) as alps:
        await add_many_items(alps)
        await alps.push(Message("of Ben to all"), sender=2)
        await alps.push(Message("of Ben to Ada"), sender=2, target=1)
        assert await run_deletion(alps, Subject("user", 1, "Ada")) >= 2 + 3 + 3
        assert await count_rows(alps, "item", "delivery", "arrived", "device") == [1, 1, 0, 2]


async def test_items_of_a_deleted_device_stay(store: Store) -> None:
    """A colleague may confirm an item later, but no sender waits for that confirmation."""
    async with field(store) as alps:
        await add_many_items(alps)
        await alps.sends(1, Entry(7, Message("of the kit"), int(alps.now)))
        await run_deletion(alps, Subject("device", 1, "kit 1"))
        assert await count_rows(alps, "item", "arrived", "device") == [MANY + 1, 0, 2]
        ((last,),) = await alps.rows("SELECT max(id) FROM item")
        await store.commit(lambda db: confirm(db, last, 2, Bearer.IP, alps.now))
        await store.commit(lambda db: contact.record_contact(db, 1, Bearer.IP, alps.now))
        assert await count_rows(alps, "receipt") == [0]


async def test_deletion_of_a_workspace_keeps_members_of_another(store: Store) -> None:
    async with field(store) as alps:
        await add_many_items(alps)

        def join(db: Db) -> None:
            db.execute("INSERT INTO workspace (id, name, created) VALUES (9, 'Andes', 0)")
            directory.add_member(db, 9, 2, over_satellite=False, now=alps.now)

        await store.commit(join)
        plan = await store.commit(
            lambda db: deletion.plan_deletion(db, find_subject(db, "workspace", "", "Alps"))
        )
        assert plan["deletes"]["users"] == ["Ada", "Cleo"]
        assert plan["items"] == MANY
        await run_deletion(alps, Subject("workspace", 1, "Alps"))
        assert await count_rows(alps, "item", "device", "delivery", "workspace") == [0, 0, 0, 1]
        assert await alps.rows("SELECT name FROM member") == [("Ben",)]


@pytest.mark.parametrize(("kind", "named"), [("user", "Ada"), ("device", "1"), ("workspace", "1")])
async def test_deletion_is_rejected_while_an_sos_is_open(
    store: Store, kind: str, named: str
) -> None:
    async with field(store) as alps:
        await alps.sends(1, Entry(7, Message("help"), int(alps.now), sos=True))

        def ask(db: Db) -> Any:
            return deletion.plan_deletion(db, find_subject(db, kind, "", named))

        with pytest.raises(
            directory.Refused, match=r"incident 1 .* is not closed: .* `fieldagent hub sos close 1"
        ):
            await store.commit(ask)
        await store.commit(lambda db: db.execute("UPDATE sos SET state = 'closed'"))
        assert (await store.commit(ask))["sos"] == 1
        await store.commit(lambda db: sos.raise_incident(db, 1, 1, None, alps.now, kind="fence"))
        with pytest.raises(directory.Refused, match=r"`fieldagent hub alarm close 2"):
            await store.commit(ask)
        await store.commit(lambda db: db.execute("UPDATE sos SET state = 'closed'"))
        summary = await store.commit(ask)
        assert (summary["sos"], summary["alarms"]) == (1, 1)
