"""One damaged item in the database that no check has found does not block others."""

from __future__ import annotations

import pytest

from fieldagent.hub.api import reading
from fieldagent.hub.records.stored_entry import DAMAGED_TEXT
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry, Receipt, encode
from tests.hub.field import START, collect
from tests.hub.test_webhooks import posting, turn

BESIDE = {"contact": '{"phone":', "estimate": '{"latitudf": 1}', "addressee": "[3"}
BODIES = [b"", b"\xff\x00", encode([Entry(1, Receipt(3, bytes(8)))])]


@pytest.mark.parametrize("body", BODIES, ids=["empty", "no CBOR", "no item"])
async def test_damaged_item_does_not_block_other_items(store: Store, body: bytes) -> None:
    async with posting(store) as (alps, there):
        for number, text in enumerate(("first", "second"), 1):
            await alps.sends(number, Entry(1, Message(text), int(START)))

        def damage(db: Db) -> None:
            db.execute("UPDATE item SET body = ? WHERE sender = 1", body)

        await store.commit(damage)
        await turn(alps)
        assert sorted(there.contents()) == [DAMAGED_TEXT, "second"]
        envelopes = await collect(alps.mailbox(3))
        contents = [entry.content for each in envelopes for entry in each.entries]
        assert [each.content for each in contents if isinstance(each, Message)] == [
            DAMAGED_TEXT,
            "second",
        ]
        items = await store.read(lambda db: reading.list_items(db, [1, 2]))
        assert {each.item for each in items} == {Message(DAMAGED_TEXT), Message("second")}
        waits = "SELECT count(*) FROM delivery WHERE device = 3 AND state = 'waiting'"
        assert await alps.rows(waits) == [(0,)]


@pytest.mark.parametrize("how", ["no JSON", "no UTF-8"])
async def test_damaged_column_beside_an_item_loses_only_that_column(store: Store, how: str) -> None:
    if how == "no UTF-8" and store.shared:
        return  # PostgreSQL's pages have a checksum, so such a text cannot occur
    async with posting(store) as (alps, there):
        for number, text in enumerate(("first", "second"), 1):
            await alps.sends(number, Entry(1, Message(text), int(START), sos=number == 1))

        def damage(db: Db) -> None:
            for column, text in BESIDE.items():
                if how == "no UTF-8":
                    sql = f"UPDATE item SET {column} = CAST(x'7bff' AS TEXT) WHERE sender = 1"
                    db.execute(sql)
                else:
                    db.execute(f"UPDATE item SET {column} = ? WHERE sender = 1", text)

        await store.commit(damage)
        await turn(alps)
        assert sorted(there.contents()) == ["first", "second"]
        envelopes = await collect(alps.mailbox(3))
        contents = [entry.content for each in envelopes for entry in each.entries]
        said = [each.content for each in contents if isinstance(each, Message)]
        assert said == ["first", "second"]
        items = await store.read(lambda db: reading.list_items(db, [1, 2]))
        assert [each.encode()["to"] for each in items] == [None, None]
        await alps.satellite()
        assert alps.sky.taken
