"""Items from kits to all: they are addressed when devices fetch them, and no device is left out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from fieldagent.hub.access import directory
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.api import reading
from fieldagent.hub.api.reading import END
from fieldagent.hub.api.standing import list_device_standings
from fieldagent.hub.field.backlog import Backlog, add_awaited
from fieldagent.hub.field.ip_link import _MailboxPost
from fieldagent.hub.records import workspace_log
from fieldagent.hub.records.forgetting import delete_old_items, expire_deliveries
from fieldagent.hub.records.ledger import Posting, add_item
from fieldagent.hub.records.numbering import skip_all_numbers
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import SOS_PRIORITY, Location, Message
from fieldagent.wire.envelope import Entry, Source
from tests.hub.field import START, Field, collect, field_of, read, said

TIME = int(START)
DAY = 86_400
ADA, BEN, CLEO = 1, 2, 3


@asynccontextmanager
async def field(store: Store) -> AsyncIterator[Field]:
    """Yield a field in which no member accepts items over satellite."""
    async with field_of(store) as alps:
        await store.commit(lambda db: db.execute("UPDATE membership SET over_satellite = 0"))
        yield alps


async def send_texts(alps: Field, *texts: str, by: int = ADA, first: int = 1) -> None:
    for number, text in enumerate(texts, first):
        await alps.sends(by, Entry(number, Message(text), TIME))


async def texts(alps: Field, number: int) -> list[str]:
    return [text for _, text in said(await collect(alps.mailbox(number)))]


async def list_rows(alps: Field) -> list[tuple[Any, ...]]:
    return await alps.rows("SELECT device, state FROM delivery ORDER BY device, sequence")


async def read_states(alps: Field, item: int = 1) -> dict[str, str]:
    standing = await alps.store.read(lambda db: list_device_standings(db, item, alps.now))
    return {each["name"]: each["state"] for each in standing}


async def test_delivery_row_is_created_only_for_a_fetching_device(store: Store) -> None:
    async with field(store) as alps:
        await send_texts(alps, "one", "two")
        assert await list_rows(alps) == []
        assert await read_states(alps) == {"kit 2": "waiting", "kit 3": "waiting"}
        assert await texts(alps, BEN) == ["one", "two"]
        assert await texts(alps, BEN) == []
        assert await list_rows(alps) == [(BEN, "stored"), (BEN, "stored")]
        assert await read_states(alps) == {"kit 2": "stored", "kit 3": "waiting"}
        assert await texts(alps, ADA) == []
        assert await texts(alps, CLEO) == ["one", "two"]


async def test_satellite_recipient_gets_one_row_at_once(store: Store) -> None:
    async with field(store) as alps:
        await send_texts(alps, "before")
        await store.commit(
            lambda db: db.execute("UPDATE membership SET over_satellite = 1 WHERE member = ?", CLEO)
        )
        await send_texts(alps, "after", first=2)
        due = "SELECT device, item, satellite_from IS NULL FROM delivery"
        assert [(*row[:2], bool(row[2])) for row in await alps.rows(due)] == [(CLEO, 2, False)]
        assert sorted(await texts(alps, CLEO)) == ["after", "before"]
        assert await list_rows(alps) == [(CLEO, "stored")] * 2


async def test_sos_is_sent_first_to_a_device_with_many_waiting_items(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_log, "ROWS_PER_TRANSACTION", 1)
    monkeypatch.setattr(workspace_log, "AT_LEAST", 1)
    async with field(store) as alps:
        await send_texts(alps, *map(str, range(6)))
        await alps.push(Message("help"), sender=CLEO, priority=SOS_PRIORITY, sos=True)
        mailbox = alps.mailbox(BEN)
        first = await mailbox.load(65_536)
        assert first is not None
        assert len(await list_rows(alps)) < 6
        await mailbox.mark_stored(first)
        assert await texts(alps, BEN) == list(map(str, range(6)))


async def test_urgent_item_is_sent_before_earlier_items(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order covers all waiting items of a device, not only the first ones."""
    monkeypatch.setattr(workspace_log, "ROWS_PER_TRANSACTION", 1)
    monkeypatch.setattr(workspace_log, "AT_LEAST", 1)
    async with field(store) as alps:
        for number in range(4):
            await alps.sends(ADA, Entry(number, Location(46.5, 7.25), TIME))
        await send_texts(alps, "a message", by=CLEO)
        first = await alps.mailbox(BEN).load(65_536)
        assert first is not None
        assert b"a message" in first.body


async def test_unfetched_item_ends_as_expired(store: Store) -> None:
    async with field(store) as alps:
        await send_texts(alps, "stale")
        assert await texts(alps, CLEO) == ["stale"]
        alps.now += DAY + 1
        assert await store.commit(lambda db: expire_deliveries(db, alps.now)) == 0
        assert await read_states(alps) == {"kit 2": "expired", "kit 3": "stored"}
        assert await texts(alps, BEN) == []
        assert await list_rows(alps) == [(BEN, "expired"), (CLEO, "stored")]
        assert await read_states(alps) == {"kit 2": "expired", "kit 3": "stored"}


async def test_unfetched_item_is_kept_until_its_expiry(store: Store) -> None:
    async with field(store) as alps:
        await send_texts(alps, "kept")
        await texts(alps, CLEO)

        def forgotten(db: Db) -> int:
            return delete_old_items(db, before=alps.now, now=alps.now)

        alps.now += 1000
        assert await store.commit(forgotten) == 0
        alps.now += DAY
        assert await store.commit(forgotten) == 1


def test_new_device_gets_no_earlier_items(store: Store) -> None:
    def given(db: Db) -> list[Any]:
        alps = directory.add_workspace(db, "Alps", now=START)
        ada, ben = (directory.add_user(db, alps, name, now=START) for name in ("Ada", "Ben"))
        kit, _ = directory.add_device(db, alps, ada, directory.NewDevice("kit 1"), now=START)

        def say(number: int) -> int:
            item, source = Message(f"{number}"), Source(kit, number)
            expires = START + DAY
            posting = Posting(alps, ada, item, TIME, 12, expires=expires, source=source)
            return add_item(db, posting, now=START, grace=60.0).item

        before = say(1)
        new, _ = directory.add_device(db, alps, ben, directory.NewDevice("kit 2"), now=START)
        assert list_device_standings(db, before, START) == []
        after = say(2)
        workspace_log.create_missing_rows(db, [(new, START)])
        return [after, db.execute("SELECT item FROM delivery WHERE device = ?", new)]

    after, rows = store.run_once(given)
    assert rows == [(after,)]


@pytest.mark.parametrize("table", ["device", "member"])
async def test_reenabled_device_gets_items_from_before_but_not_during_the_pause(
    store: Store, table: str
) -> None:
    async with field(store) as alps:

        async def set_disabled(when: float | None) -> None:
            def change(db: Db) -> None:
                directory.set_disabled(db, table, BEN, when, now=alps.now)

            await store.commit(change)

        await send_texts(alps, "before")
        alps.now += 10
        await set_disabled(alps.now)
        alps.now += 10
        await send_texts(alps, "meanwhile", first=2)
        assert await read_states(alps, 2) == {"kit 3": "waiting"}
        alps.now += 10
        await set_disabled(None)
        await send_texts(alps, "after", first=3)
        assert await texts(alps, BEN) == ["before", "after"]


async def test_returning_member_misses_items_of_the_absence(store: Store) -> None:
    async with field(store) as alps:
        await send_texts(alps, "before")
        await store.commit(lambda db: directory.remove_member(db, 1, BEN, now=alps.now))
        await send_texts(alps, "meanwhile", first=2)
        await store.commit(
            lambda db: directory.add_member(db, 1, BEN, over_satellite=False, now=alps.now)
        )
        # A changed rule is not a return.
        await send_texts(alps, "after", first=3)
        await store.commit(
            lambda db: directory.add_member(db, 1, BEN, over_satellite=True, now=alps.now)
        )
        assert await texts(alps, BEN) == ["before", "after"]


async def test_tracker_gets_items_only_after_becoming_a_kit(store: Store) -> None:
    async with field(store) as alps:
        no_token = "UPDATE device SET link_token = NULL WHERE id = ?"
        await store.commit(lambda db: db.execute(no_token, BEN))
        await send_texts(alps, "before")
        assert await read_states(alps) == {"kit 3": "waiting"}
        assert await texts(alps, BEN) == []
        await store.commit(lambda db: directory.make_link_token(db, BEN, now=alps.now))
        await send_texts(alps, "after", first=2)
        assert await texts(alps, BEN) == ["after"]


async def test_restored_copy_does_not_reuse_delivery_numbers(store: Store) -> None:
    async with field(store) as alps:
        await send_texts(alps, "one")
        await texts(alps, BEN)
        await send_texts(alps, "two", first=2)
        await store.commit(lambda db: skip_all_numbers(db, alps.now))
        assert await texts(alps, BEN) == ["two"]
        first, second = await alps.rows("SELECT sequence FROM delivery ORDER BY sequence")
        assert second[0] - first[0] > 10_000


async def test_waiting_items_are_counted_before_they_are_fetched(store: Store) -> None:
    async with field(store) as alps:
        await send_texts(alps, "one", "two")

        def counts(db: Db) -> tuple[Backlog, list[Any]]:
            listed = directory.list_devices(db, 1, alps.now)
            return add_awaited(db, Backlog(0, None), alps.now), [each["waiting"] for each in listed]

        # By places: Ada's own two are among the six.
        assert await store.read(counts) == (Backlog(6, alps.now), [0, 2, 2])
        await texts(alps, ADA)
        assert await store.read(counts) == (Backlog(4, alps.now), [0, 2, 2])
        alps.now += DAY + 1
        assert await store.read(counts) == (Backlog(0, None), [0, 0, 0])


async def test_rows_of_several_devices_are_created_together(store: Store) -> None:
    async with field(store) as alps:
        await send_texts(alps, "one", by=ADA)
        await send_texts(alps, "two", by=BEN)

        def come(db: Db) -> list[bool]:
            return workspace_log.create_missing_rows(
                db, [(each, alps.now) for each in (CLEO, ADA, BEN, CLEO)]
            )

        assert await store.commit(come) == [False] * 4
        rows = await alps.rows("SELECT device, item, sequence FROM delivery ORDER BY device, item")
        assert rows == [(ADA, 2, 1), (BEN, 1, 1), (CLEO, 1, 1), (CLEO, 2, 2)]
        ends = await alps.rows("SELECT place, next_sequence FROM device ORDER BY id")
        assert ends == [(2, 2), (2, 2), (2, 3)]


async def test_resting_link_gets_items_of_the_meantime(store: Store) -> None:
    async with field(store) as alps:
        mailbox = alps.mailbox(BEN, log_pause=0.05)
        post = _MailboxPost(mailbox, lambda direction, size: None)
        with trio.fail_after(60):
            for number in range(1, 6):
                await send_texts(alps, f"{number}", first=number)
                outgoing = await post.wait_for_next(urgent=False)
                assert [text for _, text in said([read(outgoing)])] == [f"{number}"]
                await mailbox.mark_stored(outgoing)


async def test_items_of_a_device_are_listed_despite_late_delivery_rows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LOOKED_AT", 2)
    async with field(store) as alps:
        await send_texts(alps, "early 1", "early 2", "early 3")
        for number in range(2):
            await alps.push(Message(f"for Ben {number}"), target=BEN)
        await texts(alps, BEN)
        items, edge = await store.read(lambda db: reading._list_device_items(db, 1, BEN, 100))
        assert (items, edge) == ([5, 4], 4)


async def test_delivery_list_contains_planned_items_on_all_pages(store: Store) -> None:
    async with field(store) as alps:
        await send_texts(alps, "given")
        await texts(alps, BEN)
        await send_texts(alps, "one", "two", "three", first=2)
        await alps.push(Message("pushed"), target=BEN)
        caller = Caller(1, "", 1, frozenset(), ADA, "User", "Ada", "administrator", True)

        def listed(db: Db) -> list[Any]:
            delivery_states, before = [], END
            while before:
                some, following = reading.list_deliveries(
                    db, caller, BEN, None, before, 2, alps.now
                )
                delivery_states += [each["state"] for each in some]
                before = following or 0
            return delivery_states

        assert await store.read(listed) == ["waiting"] * 4 + ["stored"]
        await texts(alps, BEN)
        assert await store.read(listed) == ["stored"] * 5
