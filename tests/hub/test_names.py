"""A kit that lost its journal learns the members' names again: real processes, and then over
satellite.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from fieldagent.hub.contract import Bearer
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry, Introduction, JournalNumber, decode, derive_key
from tests.hub.field import MASTER, Field
from tests.hub.field import field_of as field
from tests.hub.test_cluster import push
from tests.hub.test_journey import IMEI, behind_directip, folder, message_to, sky
from tests.processes import Agent, administer, agent, free_port, hub, until


def test_reflashed_kit_gets_names_and_types_with_the_first_message(tmp_path: Path) -> None:
    """The token is unchanged. A journal that was set aside is the same case."""
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    ada = administer(database, "user", "add", "Ada")["id"]
    device = administer(database, "device", "add", "kit", "--user", str(ada))
    home = folder(tmp_path / "kit")
    with ExitStack() as stack:
        running = stack.enter_context(hub(folder(tmp_path / "hub"), {"database": database}))
        settings = {
            "satellite-port": None,
            "hub-address": running.address,
            "hub-token": device["hub-token"],
        }
        for journal in ("first", "second"):
            with agent(home, settings) as kit:
                kit.expect("linked to the hub")
                push(running.port, proof, message_to(ada, first, journal))

                def identities(kit: Any = kit) -> list[Any]:
                    listed = kit.call("GET", "/api/inbound").body["payloads"]
                    return [each["body"]["payloads"][0]["identity"] for each in listed]

                until(identities)
                (identity,) = identities()
                assert identity["name"]
                assert identity["type"] == "Integration"
                kit.stop()
            shutil.rmtree(home / "state")


def test_reflashed_kit_requests_names_with_its_first_satellite_message(tmp_path: Path) -> None:
    mo_port, mt_port = free_port(), free_port()
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    ada = administer(database, "user", "add", "Ada", "--over-satellite")["id"]
    added = administer(
        database, "device", "add", "kit", "--user", str(ada), "--imei", IMEI, "--tagged"
    )
    home = folder(tmp_path / "kit")
    with ExitStack() as stack:
        settings = behind_directip(database, mo_port, mt_port)
        running = stack.enter_context(hub(folder(tmp_path / "hub"), settings))
        stack.enter_context(sky(home, mo_port, mt_port))
        for journal in ("first", "second"):
            before = count_items(database)
            with agent(home, {"satellite-key": added["satellite-key"]}) as kit:
                kit.post("here I am")
                until(partial(has_items, database, before + 1))
                push(running.port, proof, message_to(ada, first, journal))
                until(partial(list_payloads, kit))
                ((identity, content),) = list_payloads(kit)
                assert (identity["name"], identity["type"]) == ("push", "Integration")
                assert content == journal
                assert kit.stop() == 0
            shutil.rmtree(home / "state")


def list_payloads(kit: Agent) -> list[tuple[Any, str]]:
    """Return sender and text of each arrived payload."""
    listed = kit.call("GET", "/api/inbound").body["payloads"]
    first = [each["body"]["payloads"][0] for each in listed]
    return [(each["identity"], each["events"][0]["content"]) for each in first]


def count_items(database: str) -> int:
    with closing(sqlite3.connect(database)) as look:
        ((count,),) = look.execute("SELECT count(*) FROM item").fetchall()
    return int(count)


def has_items(database: str, count: int) -> bool:
    return count_items(database) == count


async def push_introduces_sender(alps: Field) -> bool:
    """Return True if the last message to Cleo's kit introduced its sender."""
    await alps.push(Message("hello"), target=3)
    alps.now += 60
    await alps.satellite()
    entries = decode(alps.sky.taken[-1][1], keys=[derive_key(MASTER, "MT")]).entries
    return any(isinstance(entry.content, Introduction) for entry in entries)


async def test_name_request_over_satellite_repeats_the_introduction(store: Store) -> None:
    async with field(store) as alps:
        assert [await push_introduces_sender(alps) for _ in range(2)] == [True, False]
        asks = Entry(70_000_001, JournalNumber(wants_names=True))
        await alps.sends(3, asks, bearer=Bearer.SATELLITE, key=derive_key(MASTER, "MO"))
        assert [await push_introduces_sender(alps) for _ in range(2)] == [True, False]
        assert await alps.rows("SELECT journal FROM device WHERE id = 3") == [(70_000_001,)]
