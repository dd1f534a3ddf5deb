"""Kits with a 9602 and with a 9704 in one workspace: each gets what its modem takes."""

from __future__ import annotations

from typing import Any

from fieldagent.hub.field import mobile_terminated
from fieldagent.hub.field.cost import costs
from fieldagent.hub.field.far_sizes import too_large
from fieldagent.hub.records import contact
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Data, Message
from fieldagent.wire.envelope import decode
from tests.hub.field import START, Field, field_of

PICTURE = Data(b"RIFF\x10\x75\0\0WEBPVP8 " + bytes(30_000))
SMALL, LARGE = 2, 3
"""Ben has a 9602, Cleo a 9704."""


async def give_modems(alps: Field) -> None:
    def store(db: Db) -> None:
        db.execute("UPDATE device SET modem = 'sbd' WHERE id = ?", SMALL)
        db.execute("UPDATE device SET modem = 'imt', thing = 't' WHERE id = ?", LARGE)

    await alps.store.commit(store)


async def why(alps: Field, target: int | None, item: Data | Message = PICTURE) -> str:
    return await alps.store.read(lambda db: too_large(db, 1, target, item, alps.now))


async def test_a_picture_to_a_9602_is_refused_with_the_reason(store: Store) -> None:
    async with field_of(store) as alps:
        await give_modems(alps)
        told = await why(alps, SMALL)
        assert "takes 270 bytes in a message" in told
        assert "30016 bytes need" in told
        assert await why(alps, LARGE) == ""
        assert await why(alps, SMALL, Data(b"RIFF\0\0\0\0WEBP" + bytes(500))) == ""
        assert await why(alps, SMALL, Data(bytes(30_000))) == "", "fragments carry it, for a price"
        assert "more messages than may be" in await why(alps, SMALL, Data(bytes(99_000)))
        assert await why(alps, SMALL, Message("x" * 30_000)) == ""
        assert await why(alps, None) == "", "to everybody: some can have it"


async def test_a_kit_that_came_over_a_link_may_do_so_again(store: Store) -> None:
    async with field_of(store) as alps:
        await give_modems(alps)
        await store.commit(lambda db: contact.note(db, SMALL, "ip", alps.now))
        assert await why(alps, SMALL) == ""


async def test_each_is_packed_for_its_modem(store: Store) -> None:
    async with field_of(store) as alps:
        await give_modems(alps)
        item = Data(bytes(3_000))
        await alps.push(item)
        alps.now += 3600
        await alps.satellite()
        for _ in range(20):
            alps.now += 60
            await alps.satellite()
        small, large = (
            [body for imei, body in alps.sky.taken if imei == f"30000000000000{device}"]
            for device in (SMALL, LARGE)
        )
        assert len(large) == 1
        assert any(entry.content == item for entry in decode(large[0]).entries)
        assert len(small) > 10
        assert max(map(len, small)) <= 270


async def test_bytes_are_told_of_an_imt_modem_and_no_credits(store: Store) -> None:
    async with field_of(store) as alps:
        await give_modems(alps)

        def look(db: Db) -> dict[int, Any]:
            posting = Posting(1, 1, Data(bytes(3_000)), int(START), 12)
            return {each["id"]: each["satellite"] for each in costs(db, posting, START)}

        told = await store.read(look)
        assert told[SMALL]["parts"] > 10
        assert told[SMALL]["credits"]
        assert (told[LARGE]["parts"], told[LARGE]["credits"]) == (1, 0)
        assert 3_000 < told[LARGE]["bytes"] < 3_100


async def test_what_became_too_large_holds_up_nobody(store: Store) -> None:
    """It was for everybody, and fits no number of messages to a 9602."""
    async with field_of(store) as alps:
        await give_modems(alps)
        await alps.push(Data(bytes(99_000)))
        await alps.push(Message("after it"), target=SMALL)
        alps.now += 3600
        await store.commit(lambda db: mobile_terminated.pack(db, alps.now))
        await store.commit(lambda db: mobile_terminated.pack(db, alps.now))
        rows = await alps.rows(
            "SELECT reason FROM delivery WHERE device = ? AND state = 'waiting'", SMALL
        )
        assert [reason.partition(":")[0] for (reason,) in rows] == [
            "too large for its satellite modem"
        ]
        assert await alps.rows("SELECT 1 FROM mobile_terminated WHERE device = ?", SMALL)
