"""The cost of people at a TAK server, the known progress of their messages, and the process that
works there: on both databases, without a server.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import trio

import tests.hub.large_modem  # noqa: F401
from fieldagent.extensions.tak import map_events as tak_map
from fieldagent.extensions.tak.bridge import inward, outward, records
from fieldagent.extensions.tak.bridge.inward import (
    NOT_ALLOWED,
    SPENT_REASON,
    SentMarker,
    TakInbox,
    TakOutcome,
    TakRules,
)
from fieldagent.extensions.tak.bridge.records import OVER_AFTER_S, NewItem, OutEvent
from fieldagent.extensions.tak.cot import EVENT_BYTES_MAX, CotPoint, encode
from fieldagent.extensions.tak.events import GeoChat, PlacedMarker, TakUnit, read_chat
from fieldagent.hub.bridge import tenure
from fieldagent.hub.bridge.contract import BridgeHost
from fieldagent.hub.bridge.tenure import TENURE_S, BridgePost
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.field import sms_mail
from fieldagent.hub.records import ledger, sos
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Location, Message, Waypoint
from fieldagent.wire.envelope import Entry
from tests.hub.field import Field, collect, field_of, said
from tests.hub.test_sms_mail import UP, desk_of, frame_of
from tests.processes import PATIENCE

BRAVO, CHARLIE = TakUnit("ANDROID-1", "BRAVO"), TakUnit("ANDROID-2", "CHARLIE")
RULES = TakRules("Alps", frozenset(("messages",)), 40, frozenset(("CHARLIE",)), 3)
KITS = frozenset((1, 2, 3))
"""Ids of users with kits."""
CLEO = 3
"""Her kit has satellite and accepts items over it."""


@asynccontextmanager
async def mountain(store: Store) -> AsyncIterator[Field]:
    """Yield the field with a bridge. PostgreSQL knows the used member numbers."""
    async with field_of(store) as alps:
        if store.shared:
            await alps.store.commit(
                lambda db: db.execute("SELECT setval(pg_get_serial_sequence('member', 'id'), 9)")
            )
        await alps.store.commit(lambda db: tenure.claim_bridge(db, records.NAME, "here", alps.now))
        yield alps


async def say(
    alps: Field, who: TakUnit, text: str, message_id: str, to: int = CLEO, rules: TakRules = RULES
) -> TakOutcome:
    chat = GeoChat(who, TakUnit(f"FA-1-{to}", "Cleo"), message_id, text)
    inbox = TakInbox(1, rules)
    return await alps.store.commit(lambda db: inward.accept_chat(db, inbox, to, chat, alps.now))


async def test_unlisted_tak_user_spends_no_credits_and_is_informed(store: Store) -> None:
    async with mountain(store) as alps:
        outcome = await say(alps, BRAVO, "come down", "m-1")
        assert outcome == TakOutcome(ItemResult.TAKEN, f"The message {NOT_ALLOWED}.")
        assert (await say(alps, BRAVO, "come down", "m-1")).result is ItemResult.REPEATED
        alps.now += 3_600
        await alps.satellite()
        assert alps.sky.taken == []
        # It goes over a link.
        assert [text for _, text in said(await collect(alps.mailbox(CLEO)))] == ["come down"]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("SOS leg broken", "Is this an emergency? Send the 911 alert of your TAK app"),
        ("СОС нога", "Це надзвичайний випадок? Надішліть сигнал 911 у застосунку TAK"),
        ("Hilfe am Grat", "Ist das ein Notfall? Senden Sie den 911-Alarm"),
        ("we come", ""),
    ],
)
async def test_chat_that_reads_like_an_sos_is_answered_with_a_question(
    store: Store, text: str, asked: str
) -> None:
    async with mountain(store) as alps:
        outcome = await say(alps, CHARLIE, text, "m-1")
        assert outcome.result is ItemResult.TAKEN, "it is a message as well"
        assert outcome.why.startswith(asked) and bool(outcome.why) is bool(asked)


async def test_listed_tak_user_stays_within_the_daily_budget(store: Store) -> None:
    async with mountain(store) as alps:
        assert await say(alps, CHARLIE, "one", "m-1") == TakOutcome(ItemResult.TAKEN)
        outcome = await say(alps, CHARLIE, "two", "m-2")
        assert outcome == TakOutcome(ItemResult.TAKEN, f"The message {SPENT_REASON}.")
        alps.now += 60
        await alps.satellite()
        assert len(alps.sky.taken) == 1
        assert said(await collect(alps.mailbox(CLEO)))[-1][1] == "two"
        alps.now += 86_400
        assert (await say(alps, CHARLIE, "tomorrow", "m-3")).why == ""
        # A text that is too long for satellite waits for a link, whoever its author is.
        assert "too long" in (await say(alps, CHARLIE, "x" * 900, "m-4")).why
        assert (await say(alps, CHARLIE, "x" * 3_000, "m-5")).result is ItemResult.REFUSED
        assert (await say(alps, CHARLIE, " \n", "m-6")).result is ItemResult.REFUSED


async def test_cost_question_is_answered_and_nothing_is_sent(store: Store) -> None:
    async with mountain(store) as alps:
        outcome = await say(alps, CHARLIE, "? come down", "m-1")
        assert outcome.result is ItemResult.ASKED
        # Numbers are longer if earlier tests used some.
        assert re.fullmatch(
            "Not sent, because it begins with a question mark: 9 bytes. kit 3: by satellite,"
            " (64|65)"
            " bytes, 2 credits. It would cost 2 credits. CHARLIE is in tak-allow; 3 of 3 of"
            " tak-credits-per-day are left.",
            outcome.why,
        )
        assert await alps.rows("SELECT count(*) FROM item") == [(0,)]
        # The message then costs the announced price, and the next answer differs.
        assert (await say(alps, CHARLIE, "come down", "m-2")).why == ""
        assert await alps.rows("SELECT sum(credits) FROM tak_event") == [(2,)]
        outcome = await say(alps, CHARLIE, "?come down", "m-3")
        assert f"It {SPENT_REASON}. CHARLIE is in tak-allow; 1 of 3" in outcome.why
        outcome = await say(alps, BRAVO, "?come down", "m-4")
        assert f"It {NOT_ALLOWED}. BRAVO is not in tak-allow" in outcome.why
        await alps.store.commit(
            lambda db: db.execute("UPDATE device SET imei = NULL, operator = NULL WHERE id = 2")
        )
        assert (
            "kit 2: only over a link. It would wait for a link, for 0 credits."
            in (await say(alps, BRAVO, "? up", "m-5", to=2)).why
        )
        # Question marks alone are a message, not a question.
        assert (await say(alps, BRAVO, "??", "m-6", to=1)).result is ItemResult.TAKEN
        assert await alps.rows("SELECT count(*) FROM tak_event") == [(2,)]


async def test_billed_bytes_are_charged_to_the_budget_as_credits(store: Store) -> None:
    async with mountain(store) as alps:
        await alps.store.commit(
            lambda db: db.execute("UPDATE device SET modem = 'large' WHERE id = ?", CLEO)
        )
        assert (await say(alps, CHARLIE, "x" * 80, "m-1")).why == ""
        assert await alps.rows("SELECT credits FROM tak_event") == [(3,)]
        assert SPENT_REASON in (await say(alps, CHARLIE, "two", "m-2")).why
        alps.now += 60
        await alps.satellite()
        assert len(alps.sky.taken) == 1


async def test_kit_reached_by_sms_gets_no_message_of_an_unlisted_user(store: Store) -> None:
    async with mountain(store) as alps:
        desk = await desk_of(alps)
        await desk.comes(frame_of(1, "here").encode_text(UP))
        assert await desk.told() is not None
        await alps.store.commit(
            lambda db: db.execute("UPDATE device SET imei = NULL, operator = NULL WHERE id = 1")
        )
        assert NOT_ALLOWED in (await say(alps, BRAVO, "come down", "m-1", to=1)).why
        alps.now += sms_mail.RECHECK_AFTER_S + 1
        assert await desk.told() is None
        assert await say(alps, CHARLIE, "come up", "m-2", to=1) == TakOutcome(ItemResult.TAKEN)
        alps.now += sms_mail.RECHECK_AFTER_S + 1
        frame = await desk.told()
        assert frame is not None
        assert b"come up" in frame.envelope
        assert b"come down" not in frame.envelope


async def test_receipt_is_due_only_once_the_kit_has_stored_the_message(store: Store) -> None:
    async with mountain(store) as alps:
        await say(alps, BRAVO, "come down", "m-1")
        owed = partial(records.list_pending_receipts, members=KITS, limit=9)
        assert await alps.store.read(owed) == []
        mailbox = alps.mailbox(CLEO)
        outgoing = await mailbox.load(65_536)
        assert outgoing is not None
        assert await alps.store.read(owed) == []
        await mailbox.mark_stored(outgoing)
        (tick,) = await alps.store.read(owed)
        assert (tick.uid, tick.message_id, tick.read) == (BRAVO.uid, "m-1", False)
        await alps.store.commit(lambda db: records.record_receipt_sent(db, tick))
        assert await alps.store.read(owed) == []
        ((item,),) = await alps.rows("SELECT item FROM tak_event")
        await alps.store.commit(
            lambda db: ledger.record_stage(db, item, CLEO, Stage.READ, "Cleo", alps.now)
        )
        (tick,) = await alps.store.read(owed)
        assert tick.read
        await alps.store.commit(lambda db: records.record_receipt_sent(db, tick))
        assert await alps.store.read(owed) == []
        # A sender who repeats a message has not got the receipt, so it is sent again.
        assert (await say(alps, BRAVO, "come down", "m-1")).result is ItemResult.REPEATED
        (tick,) = await alps.store.read(owed)
        assert tick.read


async def test_unread_messages_and_absent_users_do_not_block_other_receipts(store: Store) -> None:
    """Receipts of unread messages are not due yet. Users without a connection wrote first."""
    async with mountain(store) as alps:
        for number in range(3):
            await say(alps, BRAVO, "come down", f"m-{number}")
            await collect(alps.mailbox(CLEO))
            for tick in await store.read(lambda db: records.list_pending_receipts(db, KITS, 1)):
                assert tick.message_id == f"m-{number}"
                await store.commit(partial(records.record_receipt_sent, pending=tick))
        await say(alps, BRAVO, "and bring water", "m-9")
        await collect(alps.mailbox(CLEO))
        (tick,) = await store.read(lambda db: records.list_pending_receipts(db, KITS, 1))
        assert tick.message_id == "m-9"
        assert await store.read(lambda db: records.list_pending_receipts(db, {1, 2}, 1)) == []
        for sender in (1, 2):
            answer = Message(f"of {sender}")
            await alps.sends(sender, Entry(1, answer, int(alps.now), to="BRAVO (TAK)"))
        await line_up(alps)
        (out,) = await store.read(lambda db: records.list_due_events(db, {2, 3}, alps.now, 1))
        assert out.content == Message("of 2")


async def line_up(alps: Field, rules: TakRules = RULES) -> list[tuple[str, int | None]]:
    """Return the new items for the TAK server, and their recipients."""

    def take(db: Db) -> list[tuple[str, int | None]]:
        people = records.list_people(db, 1)
        place = tenure.read_place(db, records.NAME)
        fresh = records.list_fresh_items(db, 1, place, 100)
        whom = [(each, outward.find_person(each, people, rules.shares)) for each in fresh]
        items = [(each, person or None) for each, person in whom if person is not None]
        records.queue_items(db, items, max((each.id for each in fresh), default=place), alps.now)
        due = records.list_due_events(db, KITS, alps.now, 100)
        return [(getattr(each.content, "content", ""), each.person) for each in due]

    return await alps.store.commit(take)


async def test_items_from_a_bridge_are_not_sent_back(store: Store) -> None:
    async with mountain(store) as alps:
        await say(alps, BRAVO, "from there", "m-1")
        ((voice,),) = await alps.rows("SELECT member FROM tak_person")
        await alps.push(Message("by its voice"), sender=voice, target=1)
        assert await line_up(alps) == []
        # Items of kits to all and to that person go. An unproved item and a push stay.
        await alps.sends(1, Entry(1, Message("to all"), int(alps.now)))
        await alps.sends(1, Entry(2, Message("to one"), int(alps.now), to="BRAVO (TAK)"))
        await alps.sends(1, Entry(3, Message("to Ben"), int(alps.now), to=2))
        await alps.sends(1, Entry(4, Location(46.5, 8.1), int(alps.now)))
        await alps.push(Message("of the desk"), target=2)
        assert await line_up(alps) == [("to all", None), ("to one", voice)]
        assert await line_up(alps, RULES._replace(shares=frozenset())) == [
            ("to all", None),
            ("to one", voice),
        ]


async def test_callsign_that_looks_like_an_address_is_not_used_as_one(
    store: Store,
) -> None:
    async with mountain(store) as alps:
        for number, callsign in enumerate(("a@example.org", "group:rescue", "+41791234567")):
            await say(alps, TakUnit(f"A-{number}", callsign), "hello", f"m-{number}", to=1)
        people = await alps.rows("SELECT member FROM tak_person ORDER BY member")
        for number, (member,) in enumerate(people, 1):
            await alps.sends(1, Entry(number, Message("answer"), int(alps.now), to=member))
        assert await line_up(alps) == [("answer", member) for (member,) in people]
        assert await alps.rows("SELECT * FROM outward") == []


def test_overlong_message_is_truncated_with_a_note() -> None:
    content = Message("é" * (tak_map.TEXT_MAX + 7))
    out = OutEvent(1, 1, 1, None, "", "", "m-1", 0, content, 0.0)
    event = outward.make_event(out, UNIT, 0.0)
    assert event is not None
    chat = read_chat(event)
    assert chat is not None
    assert chat.text.endswith("é… [hub] 7 characters are cut off")
    assert len(encode(event)) < EVENT_BYTES_MAX


EVERYBODY = NewItem(1, 0.0, 1, None, True, "message", True, False)


@pytest.mark.parametrize(
    ("item", "whom"),
    [
        (EVERYBODY, 0),
        (EVERYBODY._replace(kind="waypoint"), None),
        (EVERYBODY._replace(kind="location"), None),
        (EVERYBODY._replace(kind="data"), None),
        (EVERYBODY._replace(is_unauthenticated=True), None),
        (EVERYBODY._replace(from_kit=False), None),
        (EVERYBODY._replace(is_for_everybody=False), None),
        (EVERYBODY._replace(target=9, is_for_everybody=False), 9),
        (EVERYBODY._replace(target=2, is_for_everybody=False), None),
        (EVERYBODY._replace(target=9, is_for_everybody=False, kind="waypoint"), None),
        (EVERYBODY._replace(is_from_bridge=True), None),
    ],
)
def test_item_is_sent_to_its_tak_recipient_or_to_all(item: NewItem, whom: int | None) -> None:
    assert outward.find_person(item, {9}, {"messages"}) == whom


async def test_receipt_of_a_phone_advances_the_items_stage(store: Store) -> None:
    async with mountain(store) as alps:
        await say(alps, BRAVO, "hello", "m-1")
        await alps.sends(1, Entry(1, Message("answer"), int(alps.now), to="BRAVO (TAK)"))
        await line_up(alps)
        (out,) = await alps.store.read(lambda db: records.list_due_events(db, KITS, alps.now, 9))
        assert (out.callsign, out.uid) == BRAVO[::-1]

        async def tick(uid: str, *, read: bool) -> bool:
            return await alps.store.commit(
                lambda db: records.record_receipt(db, 1, uid, out.message_id, alps.now, read=read)
            )

        async def stages() -> list[int]:
            rows = await alps.rows("SELECT rung FROM reached WHERE item = ?", out.item)
            return sorted(stage for (stage,) in rows)

        await alps.store.commit(lambda db: records.record_sent(db, out, alps.now, handed=True))
        assert await stages() == [Stage.HANDED_OVER]
        # A restarted process looks at it again, and does not enter it twice.
        await alps.store.commit(lambda db: db.execute("UPDATE bridge SET place = 0"))
        assert await line_up(alps) == []
        # It goes again with its id until the phone confirms it. Another phone's confirmation does
        # not count.
        assert (
            await alps.store.read(lambda db: records.list_due_events(db, KITS, alps.now, 9)) == []
        )
        alps.now += records.REPEAT_WAITS_S[0]
        (again,) = await alps.store.read(lambda db: records.list_due_events(db, KITS, alps.now, 9))
        assert again.message_id == out.message_id
        assert not await tick(CHARLIE.uid, read=True)
        assert await tick(BRAVO.uid, read=False)
        assert await stages() == [Stage.STORED, Stage.HANDED_OVER]
        alps.now += OVER_AFTER_S / 2
        assert (
            await alps.store.read(lambda db: records.list_due_events(db, KITS, alps.now, 9)) == []
        )
        assert await tick(BRAVO.uid, read=True)
        assert await stages() == [Stage.STORED, Stage.READ, Stage.HANDED_OVER]
        assert not await tick(BRAVO.uid, read=True)


async def test_unconfirmed_message_to_a_phone_expires_after_a_day(store: Store) -> None:
    async with mountain(store) as alps:
        await say(alps, BRAVO, "hello", "m-1")
        await alps.sends(1, Entry(1, Message("answer"), int(alps.now), to="BRAVO (TAK)"))
        await line_up(alps)
        (out,) = await alps.store.read(lambda db: records.list_due_events(db, KITS, alps.now, 9))
        await alps.store.commit(lambda db: records.record_sent(db, out, alps.now, handed=True))
        alps.now += OVER_AFTER_S
        await alps.store.commit(lambda db: records.end_old_events(db, alps.now))
        rows = await alps.rows("SELECT rung, text FROM reached WHERE item = ?", out.item)
        assert [text for stage, text in rows if stage == Stage.NOBODY] == [
            "no phone of theirs at the TAK server has confirmed it within a day"
        ]


async def test_repeated_marker_for_a_user_is_one_waypoint(store: Store) -> None:
    async with mountain(store) as alps:
        placed = PlacedMarker(
            "hut\u202e", "dry", CotPoint(46.5, 8.1), tak_map.make_date(alps.now), ()
        )
        sent = SentMarker(BRAVO, "marker-1", placed)

        async def come() -> Any:
            inbox = TakInbox(1, RULES)
            return await alps.store.commit(
                lambda db: inward.accept_marker(db, inbox, 1, sent, alps.now)
            )

        assert (await come()).result is ItemResult.TAKEN
        assert (await come()).result is ItemResult.REPEATED
        (envelope,) = await collect(alps.mailbox(1))
        (content,) = [each.content for each in envelope.entries if each.sequence == 1][-1:]
        assert (content.name, content.notes) == ("hut\N{REPLACEMENT CHARACTER}", "dry")  # type: ignore[union-attr]


async def test_marker_for_several_users_is_sent_to_each(store: Store) -> None:
    async with mountain(store) as alps:
        placed = PlacedMarker("hut", "", CotPoint(46.5, 8.1), tak_map.make_date(alps.now), ())
        sent, inbox = SentMarker(BRAVO, "marker-1", placed), TakInbox(1, RULES)
        for member in (1, 2):
            take = partial(
                inward.accept_marker, inbox=inbox, member=member, marker=sent, now=alps.now
            )
            assert (await alps.store.commit(take)).result is ItemResult.TAKEN
            (envelope,) = await collect(alps.mailbox(member))
            assert any(isinstance(each.content, Waypoint) for each in envelope.entries)


async def test_one_process_holds_the_bridge_and_another_takes_over(store: Store) -> None:
    async with field_of(store) as alps:

        async def hold(who: str, *, alone: bool = False) -> str:
            return await store.commit(
                lambda db: tenure.claim_bridge(db, records.NAME, who, alps.now, alone=alone)
            )

        identity = await hold("one")
        assert identity.startswith("FA-")
        assert await hold("other") == ""
        alps.now += TENURE_S - 1
        assert await hold("one") == identity
        alps.now += TENURE_S - 1
        assert await hold("other") == ""
        alps.now += 1
        assert await hold("other") == identity
        assert await hold("one") == ""
        await store.commit(lambda db: tenure.release_tenure(db, records.NAME, "one"))
        assert await hold("one") == ""
        await store.commit(lambda db: tenure.release_tenure(db, records.NAME, "other"))
        assert await hold("one") == identity
        assert await hold("third", alone=True) == identity


async def test_dead_holder_with_a_clock_ahead_is_replaced(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not store.shared:
        pytest.skip("nobody else can hold it in a file")
    monkeypatch.setattr(tenure, "TENURE_S", 0.1)
    monkeypatch.setattr(tenure, "RENEW_INTERVAL_S", 0.02)
    began = trio.Event()

    async def work(identity: str, workspace: int) -> None:
        began.set()
        await trio.sleep_forever()

    async with field_of(store) as alps, trio.open_nursery() as nursery:
        await store.commit(
            lambda db: tenure.claim_bridge(db, records.NAME, "dead", alps.now + 86_400)
        )
        host = BridgeHost(store, {}, alps.clock, Mock(), Mock())
        post = BridgePost(records.NAME, "1", "tak-workspace")
        nursery.start_soon(tenure.run_exclusively, host, post, work)
        with trio.fail_after(PATIENCE):
            await began.wait()
        nursery.cancel_scope.cancel()


async def test_renewed_lease_is_not_treated_as_silent(store: Store) -> None:
    async with field_of(store) as alps:
        holds = partial(tenure.claim_bridge, name=records.NAME, holder="one")
        identity = await store.commit(partial(holds, now=alps.now + 86_400))
        before = await store.read(partial(tenure.read_tenure, name=records.NAME))
        take = partial(
            tenure.claim_bridge, name=records.NAME, holder="other", now=alps.now, silent=before
        )
        await store.commit(partial(holds, now=alps.now + 86_401))
        assert await store.commit(take) == ""
        after = await store.read(partial(tenure.read_tenure, name=records.NAME))
        assert await store.commit(partial(take, silent=after)) == identity


async def test_sos_alert_repeats_until_answered_and_its_end_is_sent(store: Store) -> None:
    async with mountain(store) as alps:
        await alps.sends(1, Entry(1, Message("help"), int(alps.now), sos=True))
        find = partial(records.list_alerts, workspace=1)
        (alert,) = await alps.store.read(find)
        assert (alert.member, alert.ends) == (1, False)

        async def change(operation: Any) -> None:
            await alps.store.commit(operation)

        for _ in range(2):
            await change(lambda db: records.record_alert_sent(db, alert, alps.now))
        details = await alps.rows("SELECT detail FROM sos_event WHERE event = 'notified'")
        assert details == [("the TAK server: shown there as a 911 alert",)]
        for _ in range(2):
            await change(lambda db: records.record_cancel_at_server(db, 1, 1, "BRAVO", alps.now))
        noted = await alps.rows("SELECT event, name FROM sos_event WHERE detail LIKE 'cancelled%'")
        assert noted == [("note", "BRAVO (TAK)")]
        assert await alps.store.read(find) == [alert]
        who = sos.Actor(1, "Ada")
        await change(lambda db: sos.set_seen(db, alert.sos, who, alps.now))
        assert await alps.store.read(find) == []
        await change(lambda db: sos.set_closed(db, alert.sos, alps.now))
        for _ in range(records.CANCELS):
            (end,) = await alps.store.read(find)
            assert end.ends
            await change(lambda db, end=end: records.record_alert_sent(db, end, alps.now))
        assert await alps.store.read(find) == []


async def test_alert_contains_the_position_of_its_sos(store: Store) -> None:
    async with mountain(store) as alps:

        async def place() -> tuple[float, float] | None:
            (alert,) = await alps.store.read(partial(records.list_alerts, workspace=1))
            point = outward.make_alert(alert, TakUnit("FA-1-1", "Ada"), alps.now).point
            return (point.latitude, point.longitude) if point.is_known else None

        await alps.sends(1, Entry(1, Location(46.5, 8.1), int(alps.now) - 3_600))
        await alps.sends(1, Entry(2, Message("help"), int(alps.now), sos=True))
        assert await place() is None, "the place of an hour before is not that of the SOS"
        await alps.sends(1, Entry(3, Location(46.6, 8.2), int(alps.now), sos=True, items_back=1))
        assert await place() == (46.6, 8.2)


async def test_alert_without_a_position_contains_the_last_known_one(store: Store) -> None:
    async with mountain(store) as alps:
        await alps.sends(1, Entry(1, Location(46.5, 8.1), int(alps.now) - 3_600))
        await alps.sends(1, Entry(2, Message("help"), int(alps.now), sos=True))
        alps.now += outward.AWAITED_S
        (alert,) = await alps.store.read(partial(records.list_alerts, workspace=1))
        point = outward.make_alert(alert, TakUnit("FA-1-1", "Ada"), alps.now).point
        assert (point.latitude, point.longitude) == (46.5, 8.1)


async def test_map_contains_each_kit_user_with_the_latest_position(store: Store) -> None:
    async with mountain(store) as alps:
        for number, latitude in ((1, 46.5), (2, 46.6)):
            location = Location(latitude, 8.1)
            await alps.sends(number, Entry(1, location, int(alps.now) - 10 * number))
        await alps.sends(3, Entry(1, Message("help"), int(alps.now), sos=True))
        users = await alps.store.read(lambda db: records.list_kit_users(db, 1, 2))
        assert [(each.name, each.latitude) for each in users] == [("Cleo", None), ("Ada", 46.5)]


USER = records.KitUser(1, "Ada", 46.5, 8.1, 1_000_000.0, "satellite")
UNIT = TakUnit("FA-1-1", "Ada")


def test_position_event_contains_its_age() -> None:
    (fresh,) = outward.make_position_events(UNIT, USER, None, 1_000_060.0, is_shared=True)
    assert (fresh.how, fresh.start.timestamp()) == ("m-g", 1_000_000.0)
    assert fresh.stale.timestamp() == 1_000_000.0 + tak_map.FRESH_S
    now = 1_000_000.0 + 3 * 3_600 + 60
    old, beside = outward.make_position_events(UNIT, USER, None, now, is_shared=True)
    assert (old.uid, old.how) == ("FA-1-1", "m-g-l")
    assert old.stale.timestamp() > now
    remarks = old.find("remarks")
    assert remarks is not None
    assert remarks.text == "3 h 1 min old; kit last heard over satellite"
    name = beside.find("contact")
    assert name is not None
    assert (beside.uid, name.get("callsign")) == ("FA-1-1-last", "Ada 13:46Z")
    previous = tak_map.SentPosition(USER, now, True)
    _, removed = outward.make_position_events(
        UNIT, USER._replace(at=now), previous, now, is_shared=True
    )
    assert removed.type == "t-x-d-d"
    (hidden,) = outward.make_position_events(UNIT, USER, None, now, is_shared=False)
    assert not hidden.point.is_known


def test_position_is_sent_again_after_motion_or_an_interval() -> None:
    due, previous = tak_map.compute_position_due, tak_map.SentPosition(USER, 1_000_010.0, False)
    assert due(None, USER, 5.0) == 5.0
    moved = USER._replace(latitude=46.501, at=1_000_012.0)
    assert due(previous, moved, 1_000_012.0) == previous.at + tak_map.INTERVAL_MIN_S
    still = USER._replace(latitude=46.50001, at=1_000_012.0)
    assert due(previous, still, 1_000_012.0) == previous.at + tak_map.FRESH_S / 2
    later = 1_000_000.0 + tak_map.FRESH_S + 1
    assert due(previous, USER, later) == later
    assert due(previous._replace(old=True, at=later), USER, later) == later + tak_map.SHOWN_S / 2
