"""Kits' items that are accepted together have the same result as one by one, with few
statements.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from fieldagent.hub.contract import Bearer, Device
from fieldagent.hub.field import check_in
from fieldagent.hub.field.arrival import KitMessage
from fieldagent.hub.field.check_in import Rule
from fieldagent.hub.field.kit_items import KitItems, read_only_items
from fieldagent.hub.field.mobile_originated import MobileOriginatedReceiver
from fieldagent.hub.records.ledger import confirm_all
from fieldagent.hub.records.workspace_log import create_missing_rows
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import CheckIn, Data, Location, Message, Waypoint
from fieldagent.wire.envelope import Entry, Envelope, Fragment, Receipt, decode, encode
from tests.hub.field import GRACE, START
from tests.hub.test_counts import Counted, Undone, workspace_of

TIME = int(START)
DEVICES = 5
NOWHERE = Location(46.0, 7.0)
MIXED: list[tuple[int, list[Entry]]] = [
    (0, [Entry(1, Message("one"), TIME), Entry(2, Location(46.5, 7.25), TIME - 60)]),
    (1, [Entry(1, Data(b"one"), TIME)]),
    (0, [Entry(2, Location(46.5, 7.25), TIME - 60), Entry(3, NOWHERE, TIME - 3600)]),
    (2, [Entry(1, NOWHERE, TIME)]),
    (3, [Entry(1, Message("twice"), TIME), Entry(1, Message("twice"), TIME)]),
    (3, [Entry(1, Message("another with its number"), TIME)]),
    (1, [Entry(2, Waypoint(46.5, 7.25, "Hut"), TIME), Entry(3, Location(1.0, 2.0), TIME + 900)]),
    (4, [Entry(7, Location(3.0, 4.0), TIME)]),
]
"""Devices by their place, with their items."""

TABLES = {
    "item": "sender, body, priority, expires, source_sequence, kind, words, place",
    "delivery": "sequence, rank, expires, state, satellite_from",
    "arrived": "origin, sequence, digest, at, sos",
    "contact": "at, way, latitude, longitude, position_at",
    "webhook_delivery": "sender - (SELECT min(id) FROM device), state, not_before",
    "newest": "sender, at, (SELECT body FROM item WHERE item.id = newest.item)",
    "check_in": "due, warned",
    "device": "name, next_sequence, place, tracked",
}


def make_receiver(now: float) -> Any:
    return MobileOriginatedReceiver(
        cast(Any, None),
        clock=lambda: now,
        keys=cast(Any, None),
        grace=GRACE,
        time_to_live=86_400,
    )


def add_devices(db: Db) -> list[Device]:
    workspace_of(db, DEVICES)
    db.execute("INSERT INTO workspace (id, name, created) VALUES (10, 'elsewhere', 0)")
    for workspace, after in ((9, 0), (9, 0), (9, 5), (10, 0)):
        db.execute(
            "INSERT INTO webhook (workspace, url, created, after) VALUES (?, 'http://x', 0, ?)",
            *(workspace, after),
        )
    kits = [
        Device(*row)
        for row in db.execute("SELECT id, workspace, member, name, imei FROM device ORDER BY id")
    ]
    check_in.begin_rule(db, kits[1].id, Rule(interval=3600.0), now=START - 7200)
    return kits


def read_tables(db: Db) -> dict[str, list[Any]]:
    tables = {}
    for table, columns in TABLES.items():
        rows = db.execute(f"SELECT {columns} FROM {table}")
        whole = [[bytes(v) if isinstance(v, memoryview) else v for v in row] for row in rows]
        tables[table] = sorted(whole, key=repr)
    return tables


def run_mixed(store: Store, how: str) -> tuple[Any, dict[str, list[Any]], int]:
    results: list[Any] = []

    def try_out(db: Db) -> None:
        known, subject, counted = add_devices(db), make_receiver(START), Counted(db)
        plain = [KitItems(known[place], entries) for place, entries in MIXED]
        if how == "together":
            taken = subject._add_items(counted, plain)
        elif how == "each":
            taken = [subject._add_items(counted, [each])[0] for each in plain]
        else:
            taken = []
            for place, entries in MIXED:
                single = KitMessage(known[place], Bearer.IP, START)
                subject._process_message(counted, Envelope(tuple(entries)), single)
                taken.append(single)
        counts = [(each.items, each.duplicates) for each in taken]
        create_missing_rows(db, [(each.id, START) for each in known])
        results.append((counts, read_tables(db), len(counted.statements)))
        raise Undone

    with pytest.raises(Undone):
        store.run_once(try_out)
    return cast(tuple[Any, dict[str, list[Any]], int], results[0])


def test_grouped_kit_items_have_the_same_result_as_single_items(store: Store) -> None:
    """The general route has the same result too."""
    counts, kept, few = run_mixed(store, "together")
    assert counts == [(2, 0), (1, 0), (1, 1), (1, 0), (1, 1), (1, 0), (2, 0), (1, 0)]
    for how in ("each", "alone"):
        told_so, kept_so, many = run_mixed(store, how)
        assert told_so == counts
        for table in TABLES:
            assert kept_so[table] == kept[table], table
        assert few < many / 3


@pytest.mark.parametrize("messages", [1, 200])
def test_group_of_kit_items_takes_few_statements(store: Store, messages: int) -> None:
    def count(db: Db) -> int:
        known, counted = add_devices(db), Counted(db)
        sent = [
            KitItems(known[number % DEVICES], [Entry(number, Location(1.0, 2.0), TIME)])
            for number in range(messages)
        ]
        assert (
            sum(each.items for each in make_receiver(START)._add_items(counted, sent)) == messages
        )
        return len(counted.statements)

    # SQLite accepts that many rows in one statement.
    assert store.run_once(count) <= 10 + 2 * (messages * DEVICES // 1_000)


SOS = Entry(1, Message("help"), TIME, sos=True)


@pytest.mark.parametrize(
    ("entries", "alone"),
    [
        ([Entry(1, Message("one"), TIME)], False),
        ([Entry(1, Message("one"), TIME), SOS], True),
        ([Entry(1, Receipt(0, b"none"), TIME)], True),
        ([Entry(1, CheckIn(60), TIME)], True),
        ([Entry(1, Fragment(0, 2, b"part"), TIME)], True),
    ],
)
def test_sos_and_control_entries_are_not_grouped(entries: list[Entry], alone: bool) -> None:
    envelope = decode(encode(entries))
    assert (read_only_items(Device(1, 9, 1, "kit"), envelope) is None) == alone
    assert read_only_items(Device(1, 9, 1, "kit"), decode(encode(entries, origin=77))) is None


@pytest.mark.parametrize("messages", [1, 40])
def test_grouped_confirmations_use_few_statements_and_create_receipts(
    store: Store, messages: int
) -> None:
    def confirmed(db: Db) -> tuple[int, list[Any]]:
        known, counted = add_devices(db), Counted(db)
        sent = [KitItems(known[0], [Entry(n, Message(f"{n}"), TIME)]) for n in range(messages)]
        make_receiver(START)._add_items(db, sent)
        create_missing_rows(db, [(each.id, START) for each in known])
        pairs = db.execute("SELECT item, device FROM delivery")
        assert len(pairs) == messages * (DEVICES - 1)
        for _ in range(2):  # a device repeats an item after its link broke
            confirm_all(counted, [(item, device) for item, device in pairs], Bearer.IP, START)
        return len(counted.statements), db.execute(
            "SELECT sequence, count(DISTINCT member), count(*) FROM receipt GROUP BY sequence"
        )

    statements, receipts = store.run_once(confirmed)
    assert statements <= 6
    assert sorted(receipts) == [(n, DEVICES - 1, DEVICES - 1) for n in range(messages)]
