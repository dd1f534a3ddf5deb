"""Kits with modems of small and of large messages: each gets messages of its modem's size."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

import tests.hub.large_modem  # noqa: F401
from fieldagent.hub.access import directory, people
from fieldagent.hub.field import mobile_terminated
from fieldagent.hub.field.cost import list_costs
from fieldagent.hub.field.satellite_sizes import SatelliteKits, find_unfit_kits
from fieldagent.hub.records import contact
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Data, Message
from fieldagent.wire.envelope import decode
from tests.hub.field import START, Field, field_of
from tests.hub.test_push_api import Cloud, cloud

PICTURE = Data(b"RIFF\x10\x75\0\0WEBPVP8 " + bytes(30_000))
SMALL, LARGE = 2, 3
"""Ben has a 9602, Cleo a modem of large messages."""


async def give_modems(alps: Field) -> None:
    def store(db: Db) -> None:
        db.execute("UPDATE device SET modem = 'sbd' WHERE id = ?", SMALL)
        db.execute("UPDATE device SET modem = 'large', thing = 't' WHERE id = ?", LARGE)

    await alps.store.commit(store)


async def find_reach(
    alps: Field, target: int | None, item: Data | Message = PICTURE, **how: Any
) -> SatelliteKits:
    posting = Posting(1, 1, item, int(alps.now), 12, target=target, **how)
    return await alps.store.read(lambda db: find_unfit_kits(db, posting, alps.now))


async def read_refusal(alps: Field, target: int | None, item: Data | Message = PICTURE) -> str:
    return (await find_reach(alps, target, item)).find_refusal()


async def test_picture_to_a_9602_is_rejected_with_the_reason(store: Store) -> None:
    async with field_of(store) as alps:
        await give_modems(alps)
        reason = await read_refusal(alps, SMALL)
        assert "takes 270 bytes in a message" in reason
        assert "30016 bytes need" in reason
        assert await read_refusal(alps, LARGE) == ""
        assert await read_refusal(alps, SMALL, Data(b"RIFF\0\0\0\0WEBP" + bytes(500))) == ""
        assert await read_refusal(alps, SMALL, Data(bytes(30_000))) == "", (
            "fragments carry it, for a price"
        )
        assert "too many messages" in await read_refusal(alps, SMALL, Data(bytes(99_000)))
        assert await read_refusal(alps, SMALL, Message("x" * 30_000)) == ""
        assert await read_refusal(alps, None) == "", "to everybody: some can have it"


async def test_picture_to_a_kit_that_had_a_link_is_accepted(store: Store) -> None:
    async with field_of(store) as alps:
        await give_modems(alps)
        await store.commit(lambda db: contact.record_contact(db, SMALL, "ip", alps.now))
        assert await read_refusal(alps, SMALL) == ""


async def test_messages_are_packed_for_the_size_of_each_modem(store: Store) -> None:
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


async def test_cost_of_a_large_modem_is_in_bytes_without_credits(store: Store) -> None:
    async with field_of(store) as alps:
        await give_modems(alps)

        def look(db: Db) -> dict[int, Any]:
            posting = Posting(1, 1, Data(bytes(3_000)), int(START), 12)
            return {each["id"]: each["satellite"] for each in list_costs(db, posting, START)}

        prices = await store.read(look)
        assert prices[SMALL]["parts"] > 10
        assert prices[SMALL]["credits"]
        assert (prices[LARGE]["parts"], prices[LARGE]["credits"]) == (1, 0)
        assert 3_000 < prices[LARGE]["bytes"] < 3_100


async def test_item_too_large_for_a_modem_does_not_block_later_items(store: Store) -> None:
    """The item is for all kits, and a 9602 would need more messages than are allowed."""
    async with field_of(store) as alps:
        await give_modems(alps)
        await alps.push(Data(bytes(99_000)))
        await alps.push(Message("after it"), target=SMALL)
        alps.now += 3600
        await store.commit(lambda db: mobile_terminated.pack_due_messages(db, alps.now))
        await store.commit(lambda db: mobile_terminated.pack_due_messages(db, alps.now))
        rows = await alps.rows(
            "SELECT reason FROM delivery WHERE device = ? AND state = 'waiting'", SMALL
        )
        assert [reason.partition(":")[0] for (reason,) in rows] == [
            "too large for its satellite modem"
        ]
        assert await alps.rows("SELECT 1 FROM mobile_terminated WHERE device = ?", SMALL)


# At the push API's socket.


async def settle_modems(hub: Cloud) -> None:
    """Give Ada's and Cleo's kits a 9602, and Ben's kit a modem of large messages. The group
    `rescue` contains the first two.
    """

    def settle(db: Db) -> None:
        cleo = directory.add_user(db, 1, "Cleo", now=hub.now)
        directory.add_device(db, 1, 3, directory.NewDevice("bens kit"), now=hub.now)
        directory.add_device(db, 1, cleo, directory.NewDevice("cleos kit"), now=hub.now)
        for device, modem in ((1, "sbd"), (2, "large"), (3, "sbd")):
            db.execute(
                "UPDATE device SET imei = ?, operator = 'directip', modem = ? WHERE id = ?",
                *(f"30000000000000{device}", modem, device),
            )
        for name, members in (("rescue", {2, cleo}), ("all", {2, 3, cleo})):
            group = people.add_group(db, 1, name, over_satellite=True, now=hub.now)
            people.change_group(db, 1, group, join=frozenset(members), now=hub.now)

    await hub.store.commit(settle)


def make_picture_push(**whom: Any) -> dict[str, Any]:
    payload = base64.b64encode(PICTURE.payload).decode()
    return {"sourceUserId": "1", "workspaceId": "1", "data": {"payload": payload}, **whom}


async def test_picture_too_large_for_a_whole_group_is_rejected_with_names(store: Store) -> None:
    async with cloud(store) as hub:
        await settle_modems(hub)
        reply = await hub.push(make_picture_push(targetGroup="rescue"))
        assert reply.status == 422
        detail = json.loads(reply.body)["detail"]
        for kit in ("kit", "cleos kit"):
            assert f"{kit} is reached only by satellite, and its modem takes 270 bytes" in detail
        assert "these 30016 bytes need" in detail
        assert await hub.rows("SELECT 1 FROM item") == []
        refused = await hub.rows("SELECT detail FROM audit WHERE action = 'push refused'")
        assert "cleos kit" in str(refused)


@pytest.mark.parametrize("whom", [{}, {"targetGroup": "all"}], ids=["workspace", "group"])
async def test_picture_to_many_goes_only_to_kits_with_large_modems(
    store: Store, whom: dict[str, str]
) -> None:
    async with cloud(store) as hub:
        await settle_modems(hub)
        reply = await hub.push(make_picture_push(**whom))
        assert (reply.status, reply.body) == (200, b"")
        standing = json.loads((await hub.look(reply.headers["location"])).body)
        reasons = {each["name"]: each["reason"] for each in standing["devices"]}
        assert reasons["bens kit"] == ""
        for kit in ("kit", "cleos kit"):
            assert reasons[kit].startswith(
                "too large for its satellite modem: it is reached only by"
            )
        hub.now += 600
        await store.commit(lambda db: mobile_terminated.pack_due_messages(db, hub.now))
        packed = await hub.rows("SELECT DISTINCT device FROM mobile_terminated")
        assert packed == [(2,)]
        assert await hub.rows(
            "SELECT device FROM delivery WHERE state = 'waiting' ORDER BY device"
        ) == [(1,), (3,)], "a link brings it all the same"


async def test_cost_of_a_picture_to_many_counts_only_suitable_kits(store: Store) -> None:
    async with cloud(store) as hub:
        await settle_modems(hub)
        reply = await hub.push(make_picture_push(), path="/api/package/cost")
        prices = {each["name"]: each["satellite"] for each in json.loads(reply.body)["devices"]}
        assert prices["kit"] is prices["cleos kit"] is None
        assert prices["bens kit"]["parts"] == 1


async def test_picture_to_all_is_not_split_for_small_modems(store: Store) -> None:
    async with field_of(store) as alps:
        await give_modems(alps)
        await alps.push(PICTURE)
        alps.now += 3600
        await store.commit(lambda db: mobile_terminated.pack_due_messages(db, alps.now))
        assert await alps.rows("SELECT DISTINCT device FROM mobile_terminated") == [(LARGE,)]
        ((reason,),) = await alps.rows("SELECT reason FROM delivery WHERE device = ?", SMALL)
        assert "a picture may take 8 messages, not 1" in reason
