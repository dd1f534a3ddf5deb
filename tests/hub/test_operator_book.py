"""The hub's memory for an operator, on both engines."""

from __future__ import annotations

from fieldagent.hub.operator.contract import Verdict
from fieldagent.hub.records.operator_book import RETENTION_S, OperatorBook
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import Message
from fieldagent.wire.outcome import Outcome
from tests.hub.field import field_of

IMEI = "300000000000002"


async def test_operator_notes_are_stored_and_forgotten_after_retention(store: Store) -> None:
    async with field_of(store) as alps:
        book = OperatorBook(store, "directip", alps.clock)
        assert await book.find_imei("t") is None
        await book.store_modem(IMEI, "imt", "t")
        await book.store_modem(IMEI, "imt", "t")
        await book.store_modem("300000000000999", "imt", "u")
        assert await book.find_imei("t") == IMEI
        assert await book.find_imei("u") is None, "nobody has that IMEI"
        assert not await book.has_message("a")
        await book.record_message("a")
        await book.record_message("a")
        assert await book.has_message("a")
        assert not await OperatorBook(store, "another", alps.clock).has_message("a")
        alps.now += RETENTION_S + 1
        await book.record_message("b")
        assert not await book.has_message("a"), "forgotten, long after it could come again"
        assert await book.read_fetched() is None
        await book.record_fetched_until(1.0)
        await book.record_fetched_until(2.0)
        assert await book.read_fetched() == 2.0


async def test_mt_message_is_listed_until_its_final_state(store: Store) -> None:
    async with field_of(store) as alps:
        book = OperatorBook(store, "directip", alps.clock)
        alps.sky.verdicts.append(Verdict(Outcome.SENT, id="mt-7"))
        await alps.push(Message("down"), target=2)
        alps.now += 3600
        await alps.satellite()
        (under_way,) = await book.list_under_way()
        assert (under_way.id, under_way.state) == ("mt-7", "")
        await book.record_state("mt-7", "Received", is_final=False)
        assert (await book.list_under_way())[0].state == "Received"
        await book.record_state("mt-7", "Delivery Success", is_final=True)
        assert await book.list_under_way() == []
