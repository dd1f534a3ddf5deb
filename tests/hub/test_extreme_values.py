"""The largest and smallest values of each type on the air: stored by the hub, and read by each
list.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import trio

from fieldagent.hub.access import credentials, directory
from fieldagent.hub.contract import Bearer
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.package.delivery import Stage
from fieldagent.package.package import CheckIn, CommandAnswer, CommandOutcome, IncidentUpdate
from fieldagent.wire.envelope import Ack, Content, Entry, Receipt, RouteToHub, Unreadable, encode
from tests.agent.test_extreme_values import ITEMS, TIMES, UINT
from tests.hub.field import START, collect, field_of
from tests.hub.test_console import call
from tests.processes import hub

OF_A_DEVICE = ("usage", "commands")
LISTS = (
    *(
        "items?limit=100",
        "pushes",
        "positions",
        "positions?format=gpx",
        "positions?format=kml",
    ),
    *("deliveries?device=2", "devices", "users", "groups", "sos", "sos/1", "sos/export"),
    *("alarms", "alarms/export"),
    *("sos/export?format=csv", "fleet", "audit", "dead-letters"),
    *("webhooks", "webhook-failures", "keys", "tokens"),
    *(f"devices/1/{name}" for name in OF_A_DEVICE),
)
TO_HUB: tuple[Content, ...] = (
    CheckIn(UINT * 60),
    CommandAnswer(UINT, CommandOutcome.FAILED, b""),
    Unreadable(UINT, 0xFFFF),
    Receipt(UINT, bytes(4), Stage.READ, "\0"),
    Ack(UINT, 255, frozenset(range(255)), by_hub=True, digest=bytes(4)),
    RouteToHub(255, UINT, UINT, is_battery_low=True),
)
SPOILED = (
    *(("delivery.state", "vanished"), ("contact.modems", "[1]")),
    *(("item.body", b"\xff"), ("item.addressee", "{"), ("item.estimate", "[1]")),
    *(("sos.raised", 1e300), ("sos.state", ""), ("sos.kind", ""), ("sos_event.event", "")),
    *(("device.revoked", -1e300), ("check_in.due", 1e300), ("dead_letter.way", "")),
)
"""Columns, and values that no version of the hub has stored."""


async def store_all(store: Store) -> dict[str, str]:
    """Store all items at all times from a kit. Return an administrator's credentials."""
    async with field_of(store) as alps:
        number = 1
        for time in TIMES:
            entries = []
            for item in ITEMS:
                sos = number % 2 == 1 and not isinstance(item, IncidentUpdate)
                entries.append(Entry(number, item, time, sos))
                number += 1
            await alps.mobile_originated().take_in(alps.device(1), encode(entries), Bearer.IP)
        for said in TO_HUB:
            await alps.sends(1, Entry(UINT, said, TIMES[-1]))
        await collect(alps.mailbox(2))
        return await store.commit(add_reader)


def add_reader(db: Db) -> dict[str, str]:
    directory.set_role(db, 1, 2, "administrator", now=START)
    _, key = credentials.add_key(
        db, 1, "reader", scopes=["read", "administer"], burst=1_000, now=START
    )
    _, token = credentials.add_token(db, 2, "reader", now=START)
    return {"x-api-key": key, "Authorization": f"Bearer {token}"}


def spoil(database: str) -> None:
    def write(db: Db) -> None:
        for column, value in SPOILED:
            table, name = column.split(".")
            db.execute(f"UPDATE {table} SET {name} = ?", value)

    with closing(open_store(database)) as store:
        store.run_once(write)


def test_every_list_reads_extreme_values_and_damaged_rows(database: str, tmp_path: Path) -> None:
    with closing(open_store(database)) as store:
        proof = trio.run(store_all, store)
    with hub(tmp_path, {"database": database}) as running:
        answers = {path: call(running, "GET", f"/api/{path}", **proof) for path in LISTS}
        refused = {path: (code, text) for path, (code, _, text) in answers.items() if code != 200}
        assert refused == {}
        items = json.loads(answers["items?limit=100"][2])["items"]
        assert call(running, "GET", f"/api/items/{items[0]['id']}", **proof)[0] == 200
        # The news that an incident is open is not an item.
        assert len(items) == len(TIMES) * (len(ITEMS) - 1)
        spoil(database)
        answers = {path: call(running, "GET", f"/api/{path}", **proof) for path in LISTS}
        assert {path: text for path, (code, _, text) in answers.items() if code != 200} == {}
        output = "\n".join(running.output())
        assert "Traceback" not in output
        assert "an item is damaged in the database" in output
        assert "the modems of a kit: damaged in the database" in output
