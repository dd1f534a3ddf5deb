"""Kits are the hub's backup: items that are missing in a restored copy return from them once. Real
hub, kits and webhook. The hub is killed during the return.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psycopg

from fieldagent.hub.store.opening import is_postgres
from tests.hub.test_cluster import push
from tests.hub.test_journey import Receiver, folder, message_to, receiver
from tests.hub.test_restored import duplicate
from tests.postgres import binaries
from tests.processes import PATIENCE, Agent, administer, agent, free_port, hub, until

BEFORE, SINCE = 12, 19
LONG = "x" * 7_000
"""Long texts, so that the missing items need several notes."""


def dump(database: str, copy: Path) -> None:
    if is_postgres(database):
        by_postgres("pg_dump", "--format=custom", f"--file={copy}", f"--dbname={database}")
    else:
        duplicate(database, str(copy))


def restore_copy(database: str, copy: Path) -> None:
    if is_postgres(database):
        how = ("--clean", "--if-exists", "--single-transaction")
        by_postgres("pg_restore", *how, f"--dbname={database}", str(copy))
        return
    for each in Path(database).parent.glob("hub.sqlite3*"):
        each.unlink()
    duplicate(str(copy), database)


def by_postgres(program: str, *arguments: str) -> None:
    there = binaries()
    assert there is not None
    subprocess.run([str(there / program), *arguments], check=True, timeout=PATIENCE, env=os.environ)


def look(database: str, sql: str) -> list[tuple[Any, ...]]:
    if is_postgres(database):
        with psycopg.connect(database) as connection:
            return connection.execute(sql.encode()).fetchall()
    with closing(sqlite3.connect(database, timeout=PATIENCE)) as connection:
        return connection.execute(sql).fetchall()


def count_rows(database: str, of: str = "item") -> int:
    return int(look(database, f"SELECT count(*) FROM {of}")[0][0])


def texts(kit: Agent) -> Counter[str]:
    listed = kit.call("GET", "/api/inbound?limit=200").body["payloads"]
    events = [each["body"]["payloads"][0]["events"][0] for each in listed]
    return Counter(event["content"] for event in events)


def posted(hooked: Receiver) -> Counter[str]:
    return Counter(got["payloads"][0]["events"][0]["content"] for got in hooked.got)


def list_items(database: str) -> list[tuple[Any, ...]]:
    """Return the identifying columns of all items."""
    return look(
        database,
        "SELECT source_device, source_sequence, sender, kind, words, sos FROM item"
        " ORDER BY source_device, source_sequence, words",
    )


def test_items_missing_in_a_restored_copy_return_from_kits(database: str, tmp_path: Path) -> None:
    copy, port = tmp_path / "copy", free_port()
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    settings = {"database": database, "port": str(port), "webhook-allow": "127.0.0.0/8"}
    kits: dict[str, Any] = {}
    for name in ("ada", "ben"):
        member = administer(database, "user", "add", name)["id"]
        device = administer(database, "device", "add", name, "--user", str(member))
        kits[name] = {
            "satellite-port": None,
            "hub-token": device["hub-token"],
            "hub-address": f"http://127.0.0.1:{port}",
        }
    ada_is = 2
    with ExitStack() as stack:

        def begin(*names: str) -> list[Agent]:
            each = [agent(tmp_path / name, kits[name]) for name in names or kits]
            return [stack.enter_context(kit) for kit in each]

        hooked = stack.enter_context(receiver())
        administer(database, "webhook", "add", hooked.url, "--untried")
        home = folder(tmp_path / "hub")
        with hub(home, settings) as running:
            for name in kits:
                folder(tmp_path / name)
            ada, ben = begin()
            for number in range(BEFORE):
                ada.post(f"before {number}")
            push(port, proof, message_to(ada_is, first, "pushed before"))
            until(lambda: len(texts(ben)) == BEFORE and len(texts(ada)) == 1)
            until(lambda: len(hooked.got) == BEFORE)
            until(lambda: count_rows(database, "webhook_delivery WHERE state = 'waiting'") == 0)
            dump(database, copy)
            for number in range(SINCE):
                ada.post(f"since {number} {LONG}")
            ada.post("SOS, broken leg", priority=100)
            ben.post("from ben")
            push(port, proof, message_to(ada_is, first, "pushed since"))
            push(port, proof, message_to(ada_is, first, "pushed last"))
            until(lambda: len(texts(ben)) == BEFORE + SINCE + 1 and len(texts(ada)) == 4)
            until(lambda: len(hooked.got) == BEFORE + SINCE + 2)
            until(lambda: count_rows(database, "delivery WHERE state <> 'stored'") == 0)
            whole = list_items(database)
            assert len(whole) == BEFORE + SINCE + 5
            running.kill()
        assert [kit.stop() for kit in (ada, ben)] == [0, 0]
        restore_copy(database, copy)
        assert count_rows(database) == BEFORE + 1
        if not is_postgres(database):
            # This test uses one database, and `test_rebuilding` covers both.
            with hub(home, settings) as running:
                (ada,) = begin("ada")
                until_without_pause(lambda: count_rows(database, "item WHERE restored IS NOT NULL"))
                running.kill()
            # A restarted kit calls immediately.
            ada.kill()
        with hub(home, settings) as running:
            # New items get numbers that were used before.
            push(port, proof, message_to(ada_is, first, "pushed after"))
            ada, ben = begin()
            ada.post("after")
            until(lambda: count_rows(database, "rebuild WHERE state = 'done'") == 2)
            until(lambda: len(hooked.got) == BEFORE + SINCE + 3)
            until(lambda: count_rows(database, "delivery WHERE state <> 'stored'") == 0)
            until(lambda: len(texts(ada)) == 5 and len(texts(ben)) == BEFORE + SINCE + 2)
            now = [each for each in list_items(database) if "after" not in each[4]]
            assert now == whole
            for counted in (texts(ada), texts(ben), posted(hooked)):
                assert set(counted.values()) == {1}, counted
            ((missing, back, gone),) = look(
                database, "SELECT missing, back, gone FROM rebuild WHERE device = 1"
            )
            assert (missing, back, gone) == (back, back, 0)
            states = look(database, "SELECT state, device FROM sos")
            assert states == [("open", 1)]
            running.expect("were missing here")
            figures = read_metrics(port)
            assert "fieldagent_hub_rebuild_kits_waiting 0" in figures
            assert "fieldagent_hub_rebuild_items_gone 0" in figures
            assert administer(database, "database", "restored", "--post")["posts"] == SINCE + 2
            until(lambda: len(hooked.got) == BEFORE + SINCE + 3 + SINCE + 2)


def until_without_pause(condition: Callable[[], object]) -> None:
    """Like `until`, without a pause between checks: the next step must happen in the
    middle of it.
    """
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline


def read_metrics(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        return str(answer.read().decode())
