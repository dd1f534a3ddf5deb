"""The estimated cost of a push equals the size of its messages, byte for byte."""

from __future__ import annotations

import base64
import os

import pytest

from fieldagent.hub.field import mobile_terminated
from fieldagent.hub.field.cost import list_costs
from fieldagent.hub.records import usage
from fieldagent.hub.records.ledger import Posting, add_item
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Data, Item, Message, Waypoint
from tests.hub.field import GRACE, START, field_of

HUT = Waypoint(45.9, 7.6, "Hut")
NOISE = base64.b64encode(os.urandom(1_200)).decode()

PACKED = "DELETE FROM mobile_terminated RETURNING device, length(body)"

PUSHES: dict[str, tuple[Item, dict[str, object]]] = {
    "a short message": (Message("Storm at noon"), {}),
    "of somebody unnamed yet, who leaves no room beside": (Message(NOISE[:262]), {}),
    "with its writer's number": (
        Message("call me"),
        {"contact": '{"phone": "+41 79 000 00 00"}'},
    ),
    "in several messages": (Message(NOISE), {}),
    "an SOS": (Message("leg broken"), {"sos": True, "priority": 100}),
    "to everybody": (HUT, {"target": None}),
    "data": (Data(bytes(40)), {"target": None}),
}


@pytest.mark.parametrize("what", PUSHES)
async def test_estimated_cost_equals_the_size_of_the_messages(store: Store, what: str) -> None:
    item, how = PUSHES[what]
    async with field_of(store) as alps:
        how = {"sender": 1, "priority": 12, "time": int(START), "target": 3, **how}
        posting = Posting(workspace=1, item=item, **how)  # type: ignore[arg-type]

        def look(db: Db) -> dict[int, int]:
            """The estimate also holds for a second push, when the kit already knows its sender."""
            prices = list_costs(db, posting, alps.now)
            assert all(not each["linked"] for each in prices)
            return {each["id"]: each["satellite"]["bytes"] for each in prices}

        for named in (False, True):
            said = await store.read(look)
            assert set(said) == ({3} if posting.target else {2, 3})
            await store.commit(lambda db: add_item(db, posting, now=alps.now, grace=GRACE))
            alps.now += GRACE
            assert await store.commit(lambda db: mobile_terminated.pack_due_messages(db, alps.now))
            rows = await store.commit(lambda db: db.execute(PACKED))
            took = {device: sum(size for of, size in rows if of == device) for device in said}
            assert took == said, named


async def test_device_without_modem_or_disabled_has_no_cost(store: Store) -> None:
    posting = Posting(1, 1, HUT, int(START), priority=12)
    async with field_of(store) as alps:
        await store.commit(lambda db: db.execute("UPDATE device SET imei = NULL WHERE id = 2"))
        await store.commit(lambda db: db.execute("UPDATE device SET disabled = 1 WHERE id = 3"))
        (row,) = await store.read(lambda db: list_costs(db, posting, alps.now))
        assert (row["id"], row["satellite"]) == (2, None)


async def test_cost_estimate_shows_the_credits_left_today(store: Store) -> None:
    posting = Posting(1, 1, Message("Storm"), int(START), priority=12, target=3)
    async with field_of(store) as alps:

        def spend(db: Db) -> None:
            db.execute("UPDATE device SET credits_per_day = 20, sos_reserve = 5 WHERE id = 3")
            day = usage.format_day(START)
            db.execute("INSERT INTO spent (day, device, bytes, credits) VALUES (?, 3, 90, 2)", day)

        await store.commit(spend)
        (row,) = await store.read(lambda db: list_costs(db, posting, alps.now))
        assert row["satellite"]["creditsLeft"] == 13
