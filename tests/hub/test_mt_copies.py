"""A message that a kit could not read or does not confirm is sent again, within limits, on both
engines.
"""

from __future__ import annotations

import binascii
from dataclasses import replace

import pytest

import tests.hub.large_modem  # noqa: F401
from fieldagent.hub.contract import Bearer
from fieldagent.hub.operator.contract import Verdict
from fieldagent.hub.records.operator_book import OperatorBook
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import Data, Message
from fieldagent.wire.envelope import (
    Entry,
    Receipt,
    Unreadable,
    compute_item_digest,
    decode,
    derive_key,
)
from fieldagent.wire.outcome import Outcome
from tests.hub.field import MASTER, Field
from tests.hub.field import field_of as field

MO, MT = derive_key(MASTER, "MO"), derive_key(MASTER, "MT")


async def send_message(alps: Field, text: str) -> Entry:
    """Let the operator accept a message for Cleo's kit."""
    before = len(alps.sky.taken)
    await alps.push(Message(text), target=3)
    alps.now += 60
    await alps.satellite()
    assert len(alps.sky.taken) == before + 1
    (entry,) = read_messages(alps.sky.taken[-1][1])
    return entry


def read_messages(body: bytes) -> list[Entry]:
    entries = decode(body, keys=[MT]).entries
    return [entry for entry in entries if isinstance(entry.content, Message)]


def list_sent_texts(alps: Field) -> list[str]:
    contents = [entry.content for _, body in alps.sky.taken for entry in read_messages(body)]
    return [each.content for each in contents if isinstance(each, Message)]


async def send_from_kit(alps: Field, *entries: Entry) -> None:
    """Let Cleo's kit send these entries over satellite."""
    await alps.sends(3, *entries, bearer=Bearer.SATELLITE, key=MO)


def make_receipt(entry: Entry, at: int) -> Entry:
    return Entry(entry.sequence, Receipt(digest=compute_item_digest(entry)), at)


def make_unreadable_report(alps: Field, body: bytes, **other: int | None) -> Entry:
    said = Unreadable(len(body), sum(body) & 0xFFFF)
    return Entry(0, replace(said, **other), int(alps.now))  # type: ignore[arg-type]


@pytest.mark.parametrize("details", [{}, {"guard": None}, {"size": 1}])
async def test_mt_message_reported_as_unreadable_is_sent_again(
    store: Store, details: dict[str, int | None]
) -> None:
    """The hub finds the message by its size, or by its checksum if a cut hides the size. An earlier
    report does not match.
    """
    async with field(store) as alps:
        await send_message(alps, "the one that was garbled")
        (body,) = [body for _, body in alps.sky.taken]
        await send_message(alps, "another")
        word = make_unreadable_report(alps, body, **details)
        await send_from_kit(alps, word)
        await alps.satellite()
        both = ["the one that was garbled", "another"]
        assert list_sent_texts(alps) == [*both, both[0]]
        await send_from_kit(alps, word)
        await alps.satellite()
        assert len(alps.sky.taken) == 3, "a recording asks for nothing"


async def test_unreadable_mt_message_is_sent_again_at_most_three_times(store: Store) -> None:
    async with field(store) as alps:
        await send_message(alps, "through a broken cable")
        for _ in range(9):
            await send_from_kit(alps, make_unreadable_report(alps, alps.sky.taken[-1][1]))
            await alps.satellite()
            alps.now += 3600
        assert list_sent_texts(alps) == ["through a broken cable"] * 4


async def test_unreadable_report_without_a_match_sends_nothing(store: Store) -> None:
    async with field(store) as alps:
        await send_message(alps, "one")
        await send_message(alps, "two")
        await send_from_kit(alps, Entry(0, Unreadable(3, 5), int(alps.now)))
        await alps.satellite()
        assert list_sent_texts(alps) == ["one", "two"]


async def test_garbled_sos_receipt_is_sent_again(store: Store) -> None:
    async with field(store) as alps:
        await send_from_kit(alps, Entry(50, Message("help"), int(alps.now), sos=True))
        await alps.satellite()
        (answer,) = [body for imei, body in alps.sky.taken if imei.endswith("3")]
        (entry,) = decode(answer, keys=[MT]).entries
        assert isinstance(entry.content, Receipt)
        await send_from_kit(alps, make_unreadable_report(alps, answer))
        await alps.satellite()
        assert [body for imei, body in alps.sky.taken if imei.endswith("3")] == [answer] * 2


async def test_overtaken_mt_message_is_sent_again_after_a_delay(store: Store) -> None:
    async with field(store) as alps:
        lost, there = await send_message(alps, "lost"), await send_message(alps, "there")
        await send_from_kit(alps, make_receipt(there, int(alps.now)))
        alps.now += 599
        await alps.satellite()
        assert list_sent_texts(alps) == ["lost", "there"]
        alps.now += 2
        await alps.satellite()
        assert list_sent_texts(alps) == ["lost", "there", "lost"]
        assert read_messages(alps.sky.taken[-1][1])[0] == lost, (
            "the same number: known if it was there"
        )


async def test_late_receipt_prevents_a_repeated_mt_message(store: Store) -> None:
    async with field(store) as alps:
        late, there = await send_message(alps, "late"), await send_message(alps, "there")
        await send_from_kit(alps, make_receipt(there, int(alps.now)))
        alps.now += 300
        await send_from_kit(alps, make_receipt(late, int(alps.now)))
        alps.now += 3600
        await alps.satellite()
        assert list_sent_texts(alps) == ["late", "there"]


async def test_receipts_in_any_order_cause_no_repeated_mt_message(store: Store) -> None:
    async with field(store) as alps:
        one, two = await send_message(alps, "one"), await send_message(alps, "two")
        await send_from_kit(
            alps, make_receipt(two, int(alps.now)), make_receipt(one, int(alps.now))
        )
        alps.now += 3600
        await alps.satellite()
        assert list_sent_texts(alps) == ["one", "two"]
        assert await alps.rows("SELECT 1 FROM mt_copy") == []


@pytest.mark.parametrize("confirms", [False, True])
async def test_unconfirmed_message_of_a_large_modem_is_sent_again(
    store: Store, confirms: bool
) -> None:
    """A large modem keeps no copy. Without the repetition, a message that its kit failed to store
    is lost.
    """
    async with field(store) as alps:
        await alps.store.commit(lambda db: db.execute("UPDATE device SET modem = 'large'"))
        alps.sky.verdicts.append(Verdict(Outcome.SENT, id="mt-9"))
        entry = await send_message(alps, "its commit failed")
        hello = Message("hello")
        await send_from_kit(alps, Entry(60, hello, int(alps.now)))
        await OperatorBook(store, "directip", alps.clock).record_state(
            "mt-9", "there", is_final=True
        )
        await send_from_kit(alps, Entry(61, hello, int(alps.now)))
        alps.now += 1700
        await send_from_kit(alps, Entry(62, hello, int(alps.now)))
        await alps.satellite()
        assert list_sent_texts(alps) == ["its commit failed"], "it may have crossed the other"
        alps.now += 200
        more = [make_receipt(entry, int(alps.now))] if confirms else []
        await send_from_kit(alps, Entry(63, hello, int(alps.now)), *more)
        await alps.satellite()
        assert list_sent_texts(alps) == ["its commit failed"] * (1 if confirms else 2)


async def test_stored_checksum_equals_the_checksum_of_the_modem(store: Store) -> None:
    async with field(store) as alps:
        await alps.store.commit(lambda db: db.execute("UPDATE device SET modem = 'large'"))
        await send_message(alps, "a text")
        body = alps.sky.taken[0][1]
        rows = await alps.rows("SELECT size, guard FROM mt_copy")
        assert rows == [(len(body), binascii.crc_hqx(body, 0))]


async def test_fragments_are_not_sent_again_without_a_request(store: Store) -> None:
    async with field(store) as alps:
        await alps.push(Data(bytes(range(256)) * 3), target=3)
        alps.now += 60
        for _ in range(6):
            await alps.satellite()
        assert len(alps.sky.taken) > 2
        assert await alps.rows("SELECT items FROM mt_copy WHERE items <> '[]'") == []
