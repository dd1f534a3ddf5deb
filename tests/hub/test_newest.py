"""Positions for the other kits: the newest of each sender, without a row for each kit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.hub.access import directory, people
from fieldagent.hub.contract import OutgoingMessage
from fieldagent.hub.field import own_positions
from fieldagent.hub.field.envelope_packing import record_journal
from fieldagent.hub.field.ip_link import _MailboxPost
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import SOS_PRIORITY, Location, Message
from fieldagent.wire.envelope import Entry, Envelope, Introduction, Source, decode
from tests.hub.field import Field, collect, field_of
from tests.hub.test_workspace_log import ADA, BEN, CLEO, TIME, field, texts

PATIENCE = 20.0


def make_position(number: int, latitude: float = 46.5, at: int = 0, **how: Any) -> Entry:
    return Entry(number, Location(latitude, 7.25), TIME + at, **how)


def list_positions(envelopes: list[Envelope]) -> list[tuple[int, float]]:
    """Return sender and latitude of each position in order."""
    return [
        (envelope.origin, entry.content.latitude)
        for envelope in envelopes
        for entry in envelope.entries
        if isinstance(entry.content, Location)
    ]


def list_names(envelopes: list[Envelope]) -> list[str]:
    contents = [entry.content for envelope in envelopes for entry in envelope.entries]
    return [each.identity.name for each in contents if isinstance(each, Introduction)]


async def fetch_positions(alps: Field, number: int) -> list[tuple[int, float]]:
    return list_positions(await collect(alps.mailbox(number)))


async def test_kit_gets_the_newest_position_of_each_sender_without_delivery_rows(
    store: Store,
) -> None:
    async with field(store) as alps:
        await alps.sends(ADA, make_position(1, 46.1), make_position(2, 46.2, at=1))
        await alps.sends(BEN, make_position(1, 47.1))
        await alps.sends(ADA, make_position(3, 46.3, at=2))
        assert await fetch_positions(alps, CLEO) == [(BEN, 47.1), (ADA, 46.3)]
        assert await fetch_positions(alps, CLEO) == []
        assert await fetch_positions(alps, ADA) == [(BEN, 47.1)]
        await alps.sends(ADA, make_position(4, 46.4, at=3))
        assert await fetch_positions(alps, CLEO) == [(ADA, 46.4)]
        for table in ("delivery", "receipt"):
            assert await alps.rows(f"SELECT count(*) FROM {table}") == [(0,)]


async def test_late_earlier_position_does_not_replace_a_later_position(store: Store) -> None:
    async with field(store) as alps:
        await alps.sends(ADA, make_position(2, 46.2))
        await alps.sends(ADA, make_position(1, 46.1, at=-60))
        assert await fetch_positions(alps, BEN) == [(ADA, 46.2)]


async def test_unconfirmed_position_is_sent_again(store: Store) -> None:
    async with field(store) as alps:
        await alps.sends(ADA, make_position(1, 46.1))
        mailbox = alps.mailbox(BEN)
        sent = await mailbox.load(65_536)
        assert sent is not None
        assert await mailbox.load(65_536) is None
        await mailbox.return_message(sent, reason="the link ended")
        again = await alps.mailbox(BEN).load(65_536)
        assert again is not None
        assert bodies(again) == bodies(sent)


def bodies(outgoing: OutgoingMessage) -> tuple[bytes, ...]:
    assert isinstance(outgoing.body, tuple)
    return outgoing.body


async def test_positions_are_packed_into_messages_up_to_the_limit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with field(store) as alps:
        await alps.sends(ADA, make_position(1, 46.1))
        await alps.sends(CLEO, make_position(1, 48.1))
        first = await alps.mailbox(BEN).load(65_536)
        assert first is not None
        assert list_positions([decode(each) for each in bodies(first)]) == [
            (ADA, 46.1),
            (CLEO, 48.1),
        ]
        monkeypatch.setattr(own_positions, "BODIES_MAX", 1)
        mailbox = alps.mailbox(BEN)
        for expected in ([(ADA, 46.1)], [(CLEO, 48.1)]):
            outgoing = await mailbox.load(65_536)
            assert outgoing is not None
            assert list_positions([decode(each) for each in bodies(outgoing)]) == expected
            await mailbox.mark_stored(outgoing)
        assert await mailbox.load(65_536) is None


async def test_name_is_sent_once_and_again_after_a_change_or_new_journal(store: Store) -> None:
    async with field(store) as alps:
        mailbox = alps.mailbox(BEN)

        async def named(number: int) -> list[str]:
            await alps.sends(ADA, make_position(number, at=number))
            return list_names(await collect(mailbox))

        assert [await named(1), await named(2)] == [["Ada"], []]
        mailbox = alps.mailbox(BEN)
        assert await named(3) == []
        await store.commit(lambda db: db.execute("UPDATE member SET name = 'Eve' WHERE id = 1"))
        assert [await named(4), await named(5)] == [["Eve"], []]
        await store.commit(lambda db: record_journal(db, BEN, 7, asks_for_names=True))
        mailbox = alps.mailbox(BEN)
        assert await named(6) == ["Eve"]


async def test_new_names_per_message_are_limited(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_positions, "NAMES_MAX", 1)
    async with field(store) as alps:
        await alps.sends(ADA, make_position(1, 46.1))
        await alps.sends(CLEO, make_position(1, 48.1))
        mailbox = alps.mailbox(BEN)
        for expected in ([(ADA, 46.1)], [(CLEO, 48.1)]):
            outgoing = await mailbox.load(65_536)
            assert outgoing is not None
            assert list_positions([decode(each) for each in bodies(outgoing)]) == expected
            await mailbox.mark_stored(outgoing)
        await alps.sends(ADA, make_position(2, 46.2, at=1))
        await alps.sends(CLEO, make_position(2, 48.2, at=1))
        together = await mailbox.load(65_536)
        assert together is not None
        assert len(bodies(together)) == 2


async def test_user_option_sends_every_position(store: Store) -> None:
    async with field(store) as alps:
        wants = people.set_position_filter
        await store.commit(lambda db: wants(db, 1, BEN, all_positions=True, now=0.0))
        await alps.sends(ADA, make_position(1, 46.1))
        await alps.sends(ADA, make_position(2, 46.2, at=1))
        assert await fetch_positions(alps, BEN) == [(ADA, 46.1), (ADA, 46.2)]
        assert await fetch_positions(alps, CLEO) == [(ADA, 46.2)]
        rows = await alps.rows("SELECT device, state FROM delivery")
        assert rows == [(BEN, "stored")] * 2
        await store.commit(lambda db: wants(db, 1, BEN, all_positions=False, now=0.0))
        await alps.sends(ADA, make_position(3, 46.3, at=2))
        assert await fetch_positions(alps, BEN) == [(ADA, 46.3)]


async def test_position_also_due_over_satellite_is_sent_once_over_ip(store: Store) -> None:
    async with field_of(store) as alps:
        await alps.sends(ADA, make_position(1, 46.1))
        assert await fetch_positions(alps, CLEO) == [(ADA, 46.1)]
        rows = await alps.rows("SELECT device, state FROM delivery")
        assert rows == [(CLEO, "stored")]


async def test_position_with_requested_receipt_has_delivery_rows(store: Store) -> None:
    async with field(store) as alps:
        await alps.sends(ADA, make_position(1, 46.1, wants_receipt=True))
        await alps.sends(ADA, make_position(2, 46.2, at=1))
        assert await fetch_positions(alps, BEN) == [(ADA, 46.1), (ADA, 46.2)]
        assert await alps.rows("SELECT device, state FROM delivery") == [(BEN, "stored")]
        assert await alps.rows("SELECT device, sequence FROM receipt") == [(ADA, 1)]


async def test_messages_and_sos_are_sent_before_positions(store: Store) -> None:
    async with field(store) as alps:
        await alps.sends(ADA, make_position(1, 46.1))
        await alps.sends(ADA, Entry(2, Message("hello"), TIME))
        await alps.push(Message("help"), sender=CLEO, priority=SOS_PRIORITY, sos=True)
        got = await collect(alps.mailbox(BEN))
        contents = [
            type(entry.content)
            for envelope in got
            for entry in envelope.entries
            if not isinstance(entry.content, Source | Introduction)
        ]
        assert contents == [Message, Message, Location]
        assert [entry.sos for entry in got[0].entries if isinstance(entry.content, Message)] == [
            True
        ]


async def test_waiting_link_is_woken_by_a_position(store: Store) -> None:
    async with field(store) as alps, trio.open_nursery() as nursery:
        feeds = alps.feeds()
        nursery.start_soon(feeds.run)
        async with feeds.join_feed(1):
            post = _MailboxPost(alps.mailbox(BEN, feeds=feeds), lambda direction, size: None)
            sent: list[OutgoingMessage] = []
            came = trio.Event()

            async def speak() -> None:
                while True:
                    sent.append(await post.wait_for_next(urgent=False))
                    came.set()
                    await post.mark_stored(sent[-1])

            nursery.start_soon(speak)
            await trio.testing.wait_all_tasks_blocked()
            for latitude in (46.1, 46.2):
                came = trio.Event()
                number = len(sent) + 1
                await alps.sends(ADA, make_position(number, latitude, at=number))
                with trio.fail_after(PATIENCE):
                    await came.wait()
                assert list_positions([decode(each) for each in bodies(sent[-1])]) == [
                    (ADA, latitude)
                ]
            nursery.cancel_scope.cancel()


async def test_expired_position_is_not_sent(store: Store) -> None:
    async with field(store) as alps:
        await alps.sends(ADA, make_position(1, 46.1))
        alps.now += 86_401
        assert await fetch_positions(alps, BEN) == []


async def test_new_member_and_disabled_kit_get_only_later_positions(store: Store) -> None:
    async with field(store) as alps:
        await alps.sends(ADA, make_position(1, 46.1))
        await store.commit(lambda db: directory.set_disabled(db, "device", BEN, 1.0, now=1.0))
        assert await fetch_positions(alps, BEN) == []
        await store.commit(lambda db: directory.set_disabled(db, "device", BEN, None, now=2.0))
        assert await fetch_positions(alps, BEN) == []
        await store.commit(lambda db: directory.remove_member(db, 1, CLEO, now=3.0))
        assert await fetch_positions(alps, CLEO) == []
        await store.commit(
            lambda db: directory.add_member(db, 1, CLEO, over_satellite=False, now=4.0)
        )
        assert await fetch_positions(alps, CLEO) == []
        await alps.sends(ADA, make_position(2, 46.2, at=1))
        assert await fetch_positions(alps, BEN) == [(ADA, 46.2)]
        assert await fetch_positions(alps, CLEO) == [(ADA, 46.2)]


async def test_departed_member_gets_no_positions_over_an_open_link(store: Store) -> None:
    async with field(store) as alps:
        mailbox = alps.mailbox(BEN)
        await alps.sends(ADA, make_position(1, 46.1))
        assert list_positions(await collect(mailbox)) == [(ADA, 46.1)]
        await store.commit(lambda db: directory.remove_member(db, 1, BEN, now=3.0))
        await alps.sends(ADA, make_position(2, 46.2, at=1))
        assert await collect(mailbox) == []


async def test_repeated_position_is_not_sent_again(store: Store) -> None:
    async with field(store) as alps:
        entry = make_position(1, 46.1)
        await alps.sends(ADA, entry)
        assert await fetch_positions(alps, BEN) == [(ADA, 46.1)]
        await alps.sends(ADA, entry)
        assert await fetch_positions(alps, BEN) == []
        await alps.sends(ADA, replace(entry, sequence=2))
        assert await fetch_positions(alps, BEN) == [(ADA, 46.1)]
        assert await texts(alps, BEN) == []


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock()


async def test_link_does_not_spin_when_a_position_follows_the_log(
    store: Store, clock: trio.testing.MockClock
) -> None:
    """The mailbox rests from reading the log, is woken for positions alone, and hears the log
    again after the rest.
    """
    async with field(store) as alps:
        await alps.sends(ADA, Entry(1, Message("hut reached"), TIME))
        mailbox = alps.mailbox(BEN, log_pause=60.0)
        news = mailbox.get_news()
        assert await mailbox.load(1000) is not None
        news.set()
        mailbox.get_news()
        assert 0 < mailbox.compute_recheck_delay() <= 60
        clock.jump(60)
        mailbox.get_news()
        assert mailbox.compute_recheck_delay() > 60
