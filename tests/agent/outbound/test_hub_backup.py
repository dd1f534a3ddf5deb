"""The items that a kit's journal can return to its own hub, and to no other hub."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

import trio
import trio.testing

from fieldagent.agent.channels.contract import IP_MESSAGE_LIMITS
from fieldagent.agent.outbound.hub_backup import HubBackup
from fieldagent.package.package import Channel, Message
from fieldagent.wire.backup_note import (
    COPIES_BYTES,
    PAGE,
    BackupSummary,
    Copies,
    Direction,
    Inventory,
    InventoryRequest,
    ItemRequest,
)
from fieldagent.wire.envelope import Contact, Entry, compute_fingerprint, decode, encode
from fieldagent.wire.link import BODY_BYTES
from fieldagent.wire.outcome import Outcome
from tests.kit import START, Kit, kit

SENT, GOT = Direction
kit_by_ip = partial(kit, channel=Channel.CELLULAR)


async def receive_item(k: Kit, number: int) -> Entry:
    entry = Entry(number, Message(f"pushed {number}"), int(START))
    beside = Entry(number, Contact(phone="+41791234567"), int(START))
    await k.reception.receive(encode([entry, beside], origin=5))
    return entry


async def list_items(backup: HubBackup, direction: Direction, after: int = 0) -> Inventory:
    answer = await backup.answer(InventoryRequest(direction, after))
    assert isinstance(answer, Inventory)
    return answer


async def copy_of(backup: HubBackup, direction: Direction, place: int) -> bytes:
    answer = await backup.answer(ItemRequest(direction, (place,)))
    assert isinstance(answer, Copies)
    ((named, body, _),) = answer.copies
    assert named == place
    return body


async def test_summary_contains_last_sent_and_last_received_item(tmp_path: Path) -> None:
    async with kit_by_ip(tmp_path) as k:
        backup = HubBackup(k.journal, k.outbox, b"alps")
        assert await backup.make_summary() == BackupSummary()
        await k.post()
        assert (await backup.make_summary()).last_sent.number == 0, "the Package still waits"
        (entry,) = await k.send()
        got = await receive_item(k, 9)
        summary = await backup.make_summary()
        assert summary.last_sent == (entry.sequence, compute_fingerprint(entry)[:4])
        assert summary.last_got == (9, compute_fingerprint(got)[:4])


async def test_other_hub_gets_no_earlier_items(tmp_path: Path) -> None:
    async with kit_by_ip(tmp_path) as k:
        alps = HubBackup(k.journal, k.outbox, b"alps")
        await alps.make_summary()
        await k.post()
        (before,) = await k.send()
        await receive_item(k, 9)
        andes = HubBackup(k.journal, k.outbox, b"andes")
        assert await andes.make_summary() == BackupSummary()
        for direction in (SENT, GOT):
            assert (await list_items(andes, direction)) == Inventory(direction, 0, ())
        assert await copy_of(andes, SENT, before.sequence) == b""
        assert await copy_of(andes, GOT, 1) == b""
        await k.post()
        (since,) = await k.send()
        assert [row.number for row in (await list_items(andes, SENT)).rows] == [since.sequence]


async def test_sent_items_are_listed_in_pages_and_copied_unchanged(tmp_path: Path) -> None:
    async with kit_by_ip(tmp_path) as k:
        backup = HubBackup(k.journal, k.outbox, b"alps")
        await backup.make_summary()
        sent = []
        for _ in range(PAGE + 3):
            await k.post()
            sent += await k.send()
        first = await list_items(backup, SENT)
        assert not first.is_last
        second = await list_items(backup, SENT, first.rows[-1].place)
        assert second.is_last
        rows = [*first.rows, *second.rows]
        assert [(row.number, row.digest) for row in rows] == [
            (each.sequence, compute_fingerprint(each)[:4]) for each in sent
        ]
        body = await copy_of(backup, SENT, rows[0].place)
        assert decode(body).entries == (sent[0],)


async def test_copy_of_received_item_includes_contact_entry(tmp_path: Path) -> None:
    async with kit_by_ip(tmp_path) as k:
        backup = HubBackup(k.journal, k.outbox, b"alps")
        await backup.make_summary()
        entry = await receive_item(k, 9)
        ((place, origin, number, digest, _),) = (await list_items(backup, GOT)).rows
        assert (origin, number, digest) == (5, 9, compute_fingerprint(entry)[:4])
        whole = decode(await copy_of(backup, GOT, place))
        assert (whole.origin, whole.entries[0]) == (5, entry)
        assert whole.entries[1].content == Contact(phone="+41791234567")


async def test_only_damaged_copies_are_left_out(tmp_path: Path) -> None:
    """Regression: a damaged copy ended the link each time the hub asked for copies."""
    async with kit_by_ip(tmp_path) as k:
        backup = HubBackup(k.journal, k.outbox, b"alps")
        await backup.make_summary()
        for number in range(1, PAGE + 3):
            await receive_item(k, number)

        def spoil(db: sqlite3.Connection) -> None:
            for place, copy in ((2, "x'ff'"), (3, "substr(copy, 1, 9)"), (4, "x'8500'")):
                db.execute(f"UPDATE inbound SET copy = {copy} WHERE number = {place}")

        await k.journal.commit(spoil)
        first = await list_items(backup, GOT)
        assert [row.number for row in first.rows] == [1, *range(5, PAGE + 3)]
        for place in (2, 3, 4):
            assert await copy_of(backup, GOT, place) == b""
        assert await copy_of(backup, GOT, 5)


async def test_backup_waits_until_queue_is_empty(tmp_path: Path) -> None:
    async with kit_by_ip(tmp_path) as k:
        backup = HubBackup(k.journal, k.outbox, b"alps")
        await backup.make_summary()
        await k.post()
        async with trio.open_nursery() as asked:
            asked.start_soon(backup.answer, InventoryRequest(SENT, 0))
            await trio.testing.wait_all_tasks_blocked()
            assert asked.child_tasks, "the backup does not wait"
            asked.cancel_scope.cancel()
        await k.send()
        assert len((await list_items(backup, SENT)).rows) == 1


async def test_copies_are_limited_to_size_of_one_note(tmp_path: Path) -> None:
    async with kit_by_ip(tmp_path) as k:
        backup = HubBackup(k.journal, k.outbox, b"alps")
        await backup.make_summary()
        k.outbox.set_limits(IP_MESSAGE_LIMITS)
        places = []
        for _ in range(4):
            places.append(k.sequence(await k.post(message={"content": "x" * (COPIES_BYTES // 3)})))
            sent = k.load(BODY_BYTES)
            await k.outbox.settle(sent, Outcome.SENT)
        copies = await backup.answer(ItemRequest(SENT, tuple(places)))
        assert isinstance(copies, Copies)
        assert [each.place for each in copies.copies] == places[:2]
