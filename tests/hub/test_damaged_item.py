"""One item that is damaged in the database, and that no check has found, holds up no other."""

from __future__ import annotations

import pytest

from fieldagent.hub.api import reading
from fieldagent.hub.records.stored_entry import DAMAGED
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry, Receipt, encode
from tests.hub.field import START, collect
from tests.hub.test_webhooks import posting, turn

BODIES = [b"", b"\xff\x00", encode([Entry(1, Receipt(3, bytes(8)))])]


@pytest.mark.parametrize("body", BODIES, ids=["empty", "no CBOR", "no item"])
async def test_webhooks_kits_and_readers_are_told_of_all_others(store: Store, body: bytes) -> None:
    async with posting(store) as (alps, there):
        for number, text in enumerate(("first", "second"), 1):
            await alps.sends(number, Entry(1, Message(text), int(START)))

        def damage(db: Db) -> None:
            db.execute("UPDATE item SET body = ? WHERE sender = 1", body)

        await store.commit(damage)
        await turn(alps)
        assert sorted(there.contents()) == [DAMAGED, "second"]
        envelopes = await collect(alps.mailbox(3))
        contents = [entry.content for each in envelopes for entry in each.entries]
        assert [each.content for each in contents if isinstance(each, Message)] == [
            DAMAGED,
            "second",
        ]
        found = await store.read(lambda db: reading.items(db, [1, 2]))
        assert {each.item for each in found} == {Message(DAMAGED), Message("second")}
        waits = "SELECT count(*) FROM delivery WHERE device = 3 AND state = 'waiting'"
        assert await alps.rows(waits) == [(0,)]
