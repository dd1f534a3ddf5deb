"""A kit that lost its journal learns again who is who: real processes, and then over satellite."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fieldagent.hub.contract import Bearer
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry, Introduction, JournalNumber, decode, derive_key
from tests.hub.field import MASTER, Field
from tests.hub.field import field_of as field
from tests.hub.test_cluster import push
from tests.hub.test_journey import folder, message_to
from tests.processes import administer, agent, hub, until


def test_a_reflashed_kit_hears_names_and_types_with_the_first_message(tmp_path: Path) -> None:
    """The token is the old one; a journal that was set aside is the same case."""
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


async def introduced(alps: Field) -> bool:
    """Whether the last message to Cleo's kit said who its sender is."""
    await alps.push(Message("hello"), target=3)
    alps.now += 60
    await alps.satellite()
    entries = decode(alps.sky.taken[-1][1], keys=[derive_key(MASTER, "MT")]).entries
    return any(isinstance(entry.content, Introduction) for entry in entries)


async def test_over_satellite_the_kit_asks(store: Store) -> None:
    async with field(store) as alps:
        assert [await introduced(alps) for _ in range(2)] == [True, False]
        asks = Entry(70_000_001, JournalNumber(asks=True))
        await alps.sends(3, asks, way=Bearer.SATELLITE, key=derive_key(MASTER, "MO"))
        assert [await introduced(alps) for _ in range(2)] == [True, False]
        assert await alps.rows("SELECT journal FROM device WHERE id = 3") == [(70_000_001,)]
