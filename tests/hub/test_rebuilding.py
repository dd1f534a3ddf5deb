"""The hub's requests to a kit for lost items, note by note, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fieldagent.hub.contract import Bearer
from fieldagent.hub.field.mailbox import IpMailbox
from fieldagent.hub.records import rebuild
from fieldagent.hub.records.numbering import SKIPPED_NUMBERS, skip_all_numbers
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import Location, Message
from fieldagent.wire.backup_note import (
    BackupNote,
    BackupSummary,
    Copies,
    Copy,
    Direction,
    HeldItem,
    Inventory,
    InventoryRequest,
    InventoryRow,
    ItemRequest,
)
from fieldagent.wire.envelope import (
    Entry,
    Source,
    UnauthenticatedMark,
    compute_fingerprint,
    encode,
)
from fieldagent.wire.kit_note import decode
from tests.hub.field import START, Field, collect, field_of, said

AT = int(START) - 600
SENT, GOT = Direction


def make_entries(first: int, last: int, **how: bool) -> list[Entry]:
    return [Entry(n, Message(f"message {n}"), AT + n, **how) for n in range(first, last + 1)]


def make_row(entry: Entry, origin: int = 0, at: int = AT) -> InventoryRow:
    return InventoryRow(entry.sequence, origin, entry.sequence, compute_fingerprint(entry)[:4], at)


def make_copies(items: Sequence[Entry], state: str = "", marks: Sequence[Entry] = ()) -> Copies:
    """Return copies of the items. Each copy contains its item's `marks`."""
    bodies = {
        each.sequence: encode([each, *(mark for mark in marks if mark.sequence == each.sequence)])
        for each in items
    }
    return Copies(SENT, tuple(Copy(number, body, state) for number, body in bodies.items()))


def make_summary(entry: Entry, hours: int = 0) -> BackupSummary:
    return BackupSummary(HeldItem(entry.sequence, compute_fingerprint(entry)[:4]), hours)


async def exchange_note(mailbox: IpMailbox, said: BackupNote) -> object:
    """Send the note to the hub, and return its next request."""
    await mailbox.process_note(said.encode())
    return decode(await mailbox.next_note())


async def return_items(
    alps: Field, items: Sequence[Entry], state: str = "", marks: Sequence[Entry] = ()
) -> None:
    mailbox = alps.mailbox(1)
    assert await exchange_note(mailbox, make_summary(items[-1])) == InventoryRequest(SENT, 0)
    listed = Inventory(SENT, 0, tuple(map(make_row, items)))
    assert await exchange_note(mailbox, listed) == ItemRequest(
        SENT, tuple(each.sequence for each in items)
    )
    copies = make_copies(items, state, marks)
    assert await exchange_note(mailbox, copies) == InventoryRequest(GOT, 0)
    await mailbox.process_note(Inventory(GOT, 0, ()).encode())


async def read_progress(alps: Field, device: int) -> rebuild.Rebuild | None:
    return await alps.store.read(lambda db: rebuild.read_progress(db, device))


async def test_summary_of_known_items_is_short_and_causes_no_request(store: Store) -> None:
    async with field_of(store) as alps:
        sent = make_entries(70_000_001, 70_000_005)
        await alps.sends(1, *sent)
        await alps.push(Message("hello"), target=1)
        (got,) = (await collect(alps.mailbox(1)))[0].entries[-1:]
        known = BackupSummary(
            make_summary(sent[-1]).last_sent,
            3,
            HeldItem(got.sequence, compute_fingerprint(got)[:4]),
        )
        await alps.mailbox(1).process_note(known.encode())
        assert await alps.rows("SELECT * FROM rebuild") == []
        assert len(known.encode()) <= 20


async def test_rebuild_interrupted_by_a_restart_loses_and_doubles_no_item(store: Store) -> None:
    async with field_of(store) as alps:
        sent = make_entries(1, 5)
        await alps.sends(1, *sent[:3])
        listed = Inventory(SENT, 0, tuple(map(make_row, sent)))
        mailbox = alps.mailbox(1)
        assert await exchange_note(mailbox, make_summary(sent[4])) == InventoryRequest(SENT, 0)
        assert await exchange_note(mailbox, listed) == ItemRequest(SENT, (4, 5))
        assert await exchange_note(mailbox, make_copies(sent[3:4])) == ItemRequest(SENT, (5,))
        # The hub restarts, and the kit has sent something since.
        mailbox = alps.mailbox(1)
        await alps.sends(1, *(newer := make_entries(6, 6)))
        assert await exchange_note(mailbox, make_summary(newer[0])) == InventoryRequest(SENT, 0)
        listed = Inventory(SENT, 0, tuple(map(make_row, [*sent, *newer])))
        assert await exchange_note(mailbox, listed) == ItemRequest(SENT, (5,))
        assert await exchange_note(mailbox, make_copies(sent[4:])) == InventoryRequest(GOT, 0)
        await mailbox.process_note(Inventory(GOT, 0, ()).encode())
        state = await read_progress(alps, 1)
        assert state is not None and not state.is_open
        assert state.words == (
            "2 of 6 items were missing here, 2 came back, 0 are no longer in its journal"
        )
        assert await alps.rows(
            "SELECT source_sequence, restored IS NULL, accepted FROM item WHERE source_sequence < 6"
            " ORDER BY source_sequence"
        ) == [(n, n < 4, START if n < 4 else AT) for n in range(1, 6)]
        lines = await alps.rows("SELECT detail FROM audit WHERE action = 'rebuilt'")
        assert lines == [(f"kit 1: {state.words}",)]
        # A kit that had it recognises it, and the others get their missing items.
        await collect(alps.mailbox(2))
        await alps.sends(1, *sent)
        assert await collect(alps.mailbox(2)) == []


async def test_items_missing_in_the_journal_of_a_kit_are_counted(store: Store) -> None:
    async with field_of(store) as alps:
        await alps.sends(1, *make_entries(1, 3))
        items = make_entries(8, 9)
        mailbox = alps.mailbox(1)
        assert await exchange_note(mailbox, make_summary(items[-1])) == InventoryRequest(SENT, 0)
        listed = Inventory(SENT, 0, tuple(map(make_row, items)), (1, 8))
        assert await exchange_note(mailbox, listed) == ItemRequest(SENT, (8, 9))
        answer = Copies(SENT, (Copy(8, b""), *make_copies(items[1:]).copies))
        assert await exchange_note(mailbox, answer) == InventoryRequest(GOT, 0)
        state = await read_progress(alps, 1)
        assert state is not None
        assert (state.missing, state.back, state.gone) == (6, 1, 5)
        figures = await store.read(rebuild.count_figures)
        assert (figures["rebuild_items_gone"], figures["rebuild_kits_waiting"]) == (5, 1)


async def test_false_summary_affects_only_its_own_kit(store: Store) -> None:
    async with field_of(store) as alps:
        await alps.push(Message("hello"), target=3)
        before = await alps.rows("SELECT next_sequence FROM device ORDER BY id")
        names = await alps.rows("SELECT device, member FROM introduced ORDER BY device, member")
        await alps.mailbox(1).process_note(BackupSummary(last_got=HeldItem(7, b"else")).encode())
        now = await alps.rows("SELECT next_sequence FROM device ORDER BY id")
        assert [number - was for (number,), (was,) in zip(now, before, strict=True)] == [
            SKIPPED_NUMBERS,
            0,
            0,
        ]
        others = "SELECT device, member FROM introduced WHERE device <> 1 ORDER BY device, member"
        assert await alps.rows(others) == [each for each in names if each[0] != 1]
        assert decode(await alps.mailbox(1).next_note()) == InventoryRequest(SENT, 0)
        assert [await read_progress(alps, number) for number in (2, 3)] == [None, None]


async def test_restored_hub_requests_items_from_each_kit(store: Store) -> None:
    async with field_of(store) as alps:
        before = await alps.rows("SELECT next_sequence FROM device ORDER BY id")
        await store.commit(lambda db: skip_all_numbers(db, alps.now))
        now = await alps.rows("SELECT next_sequence FROM device ORDER BY id")
        assert now == [(number + SKIPPED_NUMBERS,) for (number,) in before]
        for number in (1, 2, 3):
            assert decode(await alps.mailbox(number).next_note()) == InventoryRequest(SENT, 0)


@pytest.mark.parametrize("state", ["open", "seen", "closed", ""])
async def test_rebuilt_sos_rings_unless_its_kit_reports_closed(store: Store, state: str) -> None:
    async with field_of(store) as alps:
        await alps.store.commit(
            lambda db: db.execute(
                "INSERT INTO alarm_contact (workspace, kind, name, address, wait, pause, created)"
                " VALUES (1, 'email', 'Duty', 'duty@example.org', 0, 300, 0)"
            )
        )
        first, last = make_entries(1, 2, sos=True)
        await return_items(alps, [first, replace(last, items_back=1)], state)
        ((number, now, raised),) = await alps.rows("SELECT number, state, raised FROM sos")
        assert (number, now) == (1, "closed" if state == "closed" else "open")
        assert raised == AT
        stage = await alps.rows("SELECT 1 FROM alarm_message WHERE state = 'waiting'")
        assert bool(stage) is (state != "closed")
        # The SOS is sent only over free bearers.
        assert await alps.rows("SELECT 1 FROM delivery WHERE satellite_from IS NOT NULL") == []
        assert await alps.rows("SELECT 1 FROM webhook_delivery") == []


async def test_rebuilt_sos_of_a_guest_keeps_its_mark(store: Store) -> None:
    async with field_of(store) as alps:
        guests, own = make_entries(1, 2, sos=True)
        mark = Entry(guests.sequence, UnauthenticatedMark(), guests.time)
        await return_items(alps, [guests, own], "open", [mark])
        assert await alps.rows("SELECT source_sequence, unauthenticated FROM item ORDER BY id") == [
            (1, 1),
            (2, 0),
        ]


async def test_items_received_by_a_kit_are_rebuilt_under_their_numbers(store: Store) -> None:
    async with field_of(store) as alps:
        pushed = Entry(4, Message("from the desk"), AT)
        of_ada = Entry(5, Message("from Ada"), AT)
        mailbox = alps.mailbox(2)
        held = BackupSummary(last_got=HeldItem(5, compute_fingerprint(of_ada)[:4]))
        assert await exchange_note(mailbox, held) == InventoryRequest(SENT, 0)
        assert await exchange_note(mailbox, Inventory(SENT, 0, ())) == InventoryRequest(GOT, 0)
        rows = (make_row(pushed, 3)._replace(place=1), make_row(of_ada, 1)._replace(place=2))
        deleted = InventoryRow(3, 9, 6, b"gone", AT)
        assert await exchange_note(mailbox, Inventory(GOT, 0, (*rows, deleted))) == ItemRequest(
            GOT, (1, 2)
        )
        source = Entry(5, Source(1, 77), AT)
        came = (
            Copy(1, encode([pushed], origin=3)),
            Copy(2, encode([of_ada, source], origin=1)),
        )
        await mailbox.process_note(Copies(GOT, came).encode())
        assert await alps.rows(
            "SELECT item.sender, source_device, source_sequence, delivery.sequence, state"
            " FROM item JOIN delivery ON delivery.item = item.id AND device = 2 ORDER BY item.id"
        ) == [(3, None, None, 4, "stored"), (1, 1, 77, 5, "stored")]
        doubts = "SELECT sender, unauthenticated FROM item ORDER BY sender"
        assert await alps.rows(doubts) == [(1, 1), (3, 1)]
        # Ada's own kit has the item too, which proves it. The hub already has the item.
        mailbox = alps.mailbox(1)
        own = replace(of_ada, sequence=77)
        assert await exchange_note(mailbox, make_summary(own)) == InventoryRequest(SENT, 0)
        assert await exchange_note(mailbox, Inventory(SENT, 0, (make_row(own),))) == ItemRequest(
            SENT, (77,)
        )
        await exchange_note(mailbox, make_copies([own]))
        assert await alps.rows(doubts) == [(1, 0), (3, 1)]
        assert said(await collect(alps.mailbox(2))) == []


async def test_forgotten_and_unrequested_items_are_not_rebuilt(store: Store) -> None:
    async with field_of(store) as alps:
        (old,) = make_entries(1, 1)
        month = 31 * 24
        await alps.mailbox(1).process_note(make_summary(old, hours=month).encode())
        assert await read_progress(alps, 1) is None
        mailbox = alps.mailbox(1)
        await mailbox.process_note(make_copies([old]).encode())
        assert await alps.rows("SELECT 1 FROM item") == []
        assert await exchange_note(mailbox, make_summary(old)) == InventoryRequest(SENT, 0)
        listed = Inventory(SENT, 0, (make_row(old, at=AT - month * 3600),))
        assert await exchange_note(mailbox, listed) == InventoryRequest(GOT, 0)
        await mailbox.process_note(Inventory(GOT, 0, ()).encode())
        # The same summary is not checked again.
        await alps.mailbox(1).process_note(make_summary(old).encode())
        state = await read_progress(alps, 1)
        assert state is not None and not state.is_open


async def test_unreadable_rebuilt_items_count_as_gone(store: Store) -> None:
    async with field_of(store) as alps:
        items = make_entries(1, 3)
        mailbox = alps.mailbox(1)
        await exchange_note(mailbox, make_summary(items[0]))
        await exchange_note(mailbox, Inventory(SENT, 0, tuple(map(make_row, items))))
        bad = (Copy(1, b"\xff"), Copy(2, encode([Entry(2, Source(1, 1))])))
        assert await exchange_note(mailbox, Copies(SENT, bad)) == ItemRequest(SENT, (3,))
        assert await exchange_note(mailbox, Copies(SENT, ())) == InventoryRequest(GOT, 0)
        state = await read_progress(alps, 1)
        assert state is not None
        assert (state.back, state.gone) == (0, 3)


async def test_rebuilt_position_does_not_replace_a_newer_position(store: Store) -> None:
    async with field_of(store) as alps:
        now = int(START)
        here = Entry(9, Location(47.0, 8.0), now)
        await alps.sends(1, here, bearer=Bearer.IP)
        old = Entry(2, Location(46.0, 7.0), AT)
        await return_items(alps, [old])
        assert await alps.rows("SELECT latitude FROM contact WHERE device = 1") == [(47.0,)]
