"""A database that was restored from a copy: new items reach the kit before they end as `stored`."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from fieldagent.hub.contract import Bearer
from fieldagent.hub.records.numbering import SKIPPED_NUMBERS
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry, Receipt, derive_key, encode
from tests.hub.field import MASTER
from tests.hub.field import field_of as field
from tests.hub.test_cluster import contents, push
from tests.hub.test_foreign_modems import PEER
from tests.hub.test_journey import IMEI, behind_directip, folder, message_to
from tests.processes import Running, administer, agent, free_port, hub, until


@pytest.mark.full
@pytest.mark.parametrize("by", ["a late receipt", "the command"])
def test_restored_database_does_not_reuse_numbers(tmp_path: Path, by: str) -> None:
    """A real hub, an independent gateway, and a kit with tags run."""
    mo_port, mt_port = free_port(), free_port()
    database, copy = str(tmp_path / "hub.sqlite3"), str(tmp_path / "copy.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    ada = administer(database, "user", "add", "Ada")["id"]
    added = administer(
        database, "device", "add", "kit", "--user", str(ada), "--imei", IMEI, "--tagged"
    )
    lines = folder(tmp_path / "lines")
    settings = behind_directip(database, mo_port, mt_port)
    satellite = {
        "satellite-port": str(lines / "0"),
        "satellite-receipts": "at-once",
        "satellite-key": added["satellite-key"],
    }
    home = folder(tmp_path / "hub")
    peer = [sys.executable, str(PEER), str(lines), str(mo_port), str(mt_port), f"0:{IMEI}:"]
    with ExitStack() as stack:
        stack.enter_context(Running(peer, "ready"))
        kit = stack.enter_context(agent(folder(tmp_path / "kit"), satellite))
        with hub(home, settings) as running:
            push(running.port, proof, message_to(ada, first, "before the copy"))
            until(lambda: list_deliveries(database) == [(1, "stored")])
            running.stop()
        duplicate(database, copy)
        with hub(home, settings) as running:
            push(running.port, proof, message_to(ada, first, "after the copy"))
            running.expect("the operator has it")
            running.kill()
        until(lambda: "after the copy" in contents(kit))
        for each in Path(database).parent.glob("hub.sqlite3*"):
            each.unlink()
        duplicate(copy, database)
        if by == "the command":
            assert administer(database, "database", "restored") == {"devices": 1}
        with hub(home, settings) as running:
            if by == "a late receipt":
                running.expect("numbers are left out for it")
            push(running.port, proof, message_to(ada, first, "after the restore"))
            until(lambda: "after the restore" in contents(kit))
            until(
                lambda: (
                    list_deliveries(database) == [(1, "stored"), (SKIPPED_NUMBERS + 2, "stored")]
                )
            )
        assert sorted(contents(kit)) == ["after the copy", "after the restore", "before the copy"]


def list_deliveries(database: str) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(database)) as look:
        return look.execute("SELECT sequence, state FROM delivery ORDER BY sequence").fetchall()


def duplicate(source: str, target: str) -> None:
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


async def test_mismatched_receipt_skips_numbers_of_its_device_once_an_hour(store: Store) -> None:
    """An unproved device cannot do that, and neither can an impossible number."""
    key = derive_key(MASTER, "MO")

    async with field(store) as alps:

        async def numbers() -> list[int]:
            rows = await alps.rows("SELECT next_sequence FROM device ORDER BY id")
            return [number for (number,) in rows]

        async def confirms(device: int, sequence: int, key: bytes | None) -> None:
            body = encode([Entry(sequence, Receipt(digest=b"else"), 1)], key=key)
            hub = alps.mobile_originated()
            await hub.take_in(alps.device(device), body, Bearer.SATELLITE)
            assert hub.mismatches == 1

        await alps.push(Message("hello"), target=3)
        before = await numbers()
        await confirms(1, before[0], None)
        await confirms(3, before[2] + SKIPPED_NUMBERS, key)
        assert await numbers() == before
        for _ in range(3):
            await confirms(3, (await numbers())[2], key)
        assert await numbers() == [*before[:2], before[2] + SKIPPED_NUMBERS]
        alps.now += 3601
        await confirms(3, (await numbers())[2] + 5, key)
        assert await numbers() == [*before[:2], before[2] + 2 * SKIPPED_NUMBERS]
