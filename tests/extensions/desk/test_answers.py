"""The handling of contacts' answers: codes, texts, limits, and the replies to their authors."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from fieldagent.extensions.desk.hub import alarm_link, answers, contacts, notification
from fieldagent.hub.access import revocation
from fieldagent.hub.api import sos_desk
from fieldagent.hub.contact.contract import ContactAnswer
from fieldagent.hub.contract import Device
from fieldagent.hub.field import texts_to_kits
from fieldagent.hub.records import forgetting, lease, sos
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Message
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult
from fieldagent.wire.envelope import Entry
from tests.hub.field import START, Field, collect, field_of, said
from tests.hub.test_sos_desk import HELP

PHONE = "+41791234567"
HANDED = HandoverResult(HandoverOutcome.HANDED)


async def deliver_due(alps: Field) -> list[str]:
    """Deliver everything that is due, and return the codes, or the texts of replies."""
    messages = await alps.store.commit(
        lambda db: notification.claim_notifications(db, alps.now + 9, 9, "")
    )
    for each in messages:
        await alps.store.commit(
            partial(notification.record_result, notification=each, result=HANDED, now=alps.now)
        )
    return [each.notice.code or each.notice.text for each in messages]


async def ask_for_help(alps: Field, **contact: Any) -> str:
    """Raise an SOS of kit 1, and return the code in the contact's message."""
    await alps.store.commit(_number_on)
    new = contacts.NewContact("Bergwacht", PHONE, "sms")._replace(**contact)
    await alps.store.commit(lambda db: contacts.add_contact(db, 1, new, now=START))
    await alps.sends(1, HELP)
    (code,) = await deliver_due(alps)
    return code


def _number_on(db: Db) -> None:
    """Members of the field have numbers that PostgreSQL has not assigned."""
    if db.takes_lists:
        db.execute("SELECT setval(pg_get_serial_sequence('member', 'id'), 100)")


async def receive_answer(alps: Field, text: str, id_: str = "", sender: str = PHONE) -> str:
    alps.now += 1
    reply = ContactAnswer("sms", id_ or f"sms {alps.now}", sender, text)
    return await alps.store.commit(lambda db: answers.process_answer(db, reply, alps.now))


async def read_incident(alps: Field) -> sos.Sos:
    match = await alps.store.read(lambda db: sos.find_incident(db, 1, 1))
    assert match is not None
    return match


def make_wrong_code(code: str) -> str:
    return f"{(int(code) + 1) % 10**6:06}"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("OK 471123", (True, "471123", "")),
        ("ok,471123: on our way", (True, "471123", "on our way")),
        ("471123 who is with you?", (False, "471123", "who is with you?")),
        ("OK", (True, "", "")),
        ("okay we come", (False, "", "okay we come")),
        ("4711234567 is my number", (False, "", "4711234567 is my number")),
        ("OK 471123471123 we come", (True, "471123471123", "we come")),
        ("OK 4711234711", (True, "", "4711234711")),
        ("\n OK.\n471123\nwe\ncome", (True, "471123", "we come")),
        ("", (False, "", "")),
    ],
)
def test_contact_answer_is_parsed_into_code_and_text(
    text: str, read: tuple[bool, str, str]
) -> None:
    assert answers.parse_answer_text(text) == read


async def test_code_acknowledges_sos_once_in_the_contact_name(store: Store) -> None:
    async with field_of(store) as alps:
        code = await ask_for_help(alps)
        assert await receive_answer(alps, f"OK {code} with two dogs", "a") == "acknowledged"
        assert await receive_answer(alps, f"OK {code} with two dogs", "a") == "received before"
        assert (await read_incident(alps)).seen_as == "Bergwacht"
        assert await receive_answer(alps, f"OK {code}") == "used"
        short, (first, second) = (await read_incident(alps)).short, await deliver_due(alps)
        assert first.startswith(f"You have taken over SOS {short}.")
        assert f"the code was already used. Bergwacht already has SOS {short}" in second
        rows = await alps.rows("SELECT by_name, text FROM receipt WHERE says <> ''")
        assert rows == [("Bergwacht", "with two dogs")]


async def test_reply_for_revoked_kit_does_not_promise_delivery(store: Store) -> None:
    async with field_of(store) as alps:
        code = await ask_for_help(alps)
        await store.commit(lambda db: revocation.revoke(db, 1, "stolen", now=alps.now))
        assert await receive_answer(alps, f"OK {code}") == "acknowledged"
        short, (text,) = (await read_incident(alps)).short, await deliver_due(alps)
        nothing = "Nothing is sent to its kit, and no other contact is alerted."
        assert text == f"You have taken over SOS {short}. {nothing}"


async def test_ok_without_the_code_does_not_acknowledge_the_sos(store: Store) -> None:
    async with field_of(store) as alps:
        code = await ask_for_help(alps)
        assert await receive_answer(alps, "OK") == "without code"
        assert (
            await receive_answer(alps, f"OK {code}", sender="+41791234568")
            == "from an unknown sender"
        )
        assert (await read_incident(alps)).state == "open"
        assert await deliver_due(alps) == [
            "Not answered: reply with OK and the six digits of the message."
        ]


async def test_right_code_is_refused_after_too_many_wrong_codes(store: Store) -> None:
    async with field_of(store) as alps:
        code = await ask_for_help(alps)
        for _ in range(answers.WRONG_MAX):
            assert await receive_answer(alps, f"OK {make_wrong_code(code)}") == "wrong code"
        assert await receive_answer(alps, f"OK {code}") == "limited"
        assert (await read_incident(alps)).state == "open"
        alps.now += answers.WRONG_WITHIN
        assert await receive_answer(alps, f"OK {code}") == "acknowledged"


async def test_forged_messages_do_not_lock_out_the_contact(store: Store) -> None:
    """An attacker can forge the number of an SMS, but does not read its replies."""
    async with field_of(store) as alps:
        code = await ask_for_help(alps)
        # The forged messages also use up the replies of the hour.
        for _ in range(texts_to_kits.REPLIES_MAX):
            assert await receive_answer(alps, "OK") == "without code"
        while await deliver_due(alps):
            pass
        for _ in range(answers.WRONG_MAX):
            assert await receive_answer(alps, f"OK {make_wrong_code(code)}") == "wrong code"
        (reply,) = await deliver_due(alps)
        assert await receive_answer(alps, f"OK {code}") == "limited"
        long_code = re.search(r"OK ([0-9]{12}),", reply)
        assert long_code is not None
        wrong = f"{(int(long_code[1]) + 1) % 10**12:012}"
        assert await receive_answer(alps, f"OK {wrong}") == "wrong code"
        assert (await read_incident(alps)).state == "open"
        assert await receive_answer(alps, f"OK {long_code[1]} we come") == "acknowledged"
        assert (await read_incident(alps)).seen_as == "Bergwacht"


async def test_expired_code_does_not_acknowledge_the_sos(store: Store) -> None:
    async with field_of(store) as alps:
        code = await ask_for_help(alps)
        await store.commit(
            lambda db: db.execute("UPDATE alarm_link SET expires = ?", alps.now + 1) and None
        )
        alps.now += 1
        assert await receive_answer(alps, f"OK {code}") == "about no alarm"
        assert (await read_incident(alps)).state == "open"


@pytest.mark.parametrize(
    ("text", "arrives"),
    [("{0} who is with you?", "who is with you?"), ("who?", "(number not proved) who?")],
)
async def test_contact_text_is_sent_to_the_kit_and_shown_in_the_thread(
    store: Store, text: str, arrives: str
) -> None:
    async with field_of(store) as alps:
        code = await ask_for_help(alps)
        assert await receive_answer(alps, text.format(code)) == "to the kit"
        (reply,) = await deliver_due(alps)
        assert reply.startswith("Your message is sent to the kit")
        ((number, content),) = said(await collect(alps.mailbox(1)))
        assert content == arrives
        names = await alps.rows("SELECT name, type FROM member WHERE id = ?", number)
        assert names == [("Bergwacht", "Integration")]
        shown = await store.read(lambda db: sos_desk.describe_sos(db, find_open_incident(db)))
        assert arrives in str(shown["thread"])


def find_open_incident(db: Db) -> sos.Sos:
    incident = sos.find_incident(db, 1, 1)
    assert incident is not None
    return incident


async def test_text_too_long_for_satellite_is_rejected_with_the_excess(store: Store) -> None:
    async with field_of(store) as alps:
        code = await ask_for_help(alps)
        over = texts_to_kits.SATELLITE_BYTES + 43
        assert await receive_answer(alps, f"{code} {'x' * over}") == "not sent"
        assert await deliver_due(alps) == [
            f"Nothing sent: too long by 43 bytes of {over}. Write less."
        ]
        assert said(await collect(alps.mailbox(1))) == []
        shown = await store.read(lambda db: sos_desk.list_timeline(db, 1))
        assert any("it was not sent to the kit: xxx" in each["detail"] for each in shown)


async def test_linked_kit_is_sent_longer_texts(store: Store) -> None:
    async with field_of(store) as alps:
        code = await ask_for_help(alps)
        leases = lease.Leases(store, "here", clock=alps.clock)
        async with leases.hold_lease(alps.device(1)):
            assert await receive_answer(alps, f"{code} {'x' * 500}") == "to the kit"


async def test_text_beyond_the_daily_credits_is_rejected(store: Store) -> None:
    async with field_of(store) as alps:
        code = await ask_for_help(alps)
        await store.commit(
            lambda db: db.execute("UPDATE device SET credits_per_day = 1 WHERE id = 1") and None
        )
        assert await receive_answer(alps, f"{code} {'x' * 150}") == "not sent"
        (reply,) = await deliver_due(alps)
        assert reply.startswith("Nothing sent: it costs ")
        assert reply.endswith(" satellite credits, but only 1 are left today.")


async def test_text_after_several_alarms_needs_a_code(store: Store) -> None:
    async with field_of(store) as alps:
        code = await ask_for_help(alps)
        await alps.sends(2, Entry(3, Message("avalanche"), int(START), sos=True))
        (second,) = await deliver_due(alps)
        assert await receive_answer(alps, "we come") == "ambiguous"
        assert await receive_answer(alps, f"{second} we come") == "to the kit"
        assert await receive_answer(alps, f"OK {code}") == "acknowledged"
        assert said(await collect(alps.mailbox(2)))[-1][1] == "we come"


def _move_kit_2(db: Db) -> None:
    """Give Ben and his kit a workspace of their own, which has the same contact."""
    db.execute("INSERT INTO workspace (id, name, created) VALUES (2, 'Coast', 0)")
    db.execute("UPDATE membership SET workspace = 2 WHERE member = 2")
    db.execute("UPDATE device SET workspace = 2 WHERE id = 2")
    contacts.add_contact(db, 2, contacts.NewContact("Coast guard", PHONE, "sms"), now=START)


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
async def test_text_of_ambiguous_contact_reaches_no_other_workspace(
    store: Store, closed: bool
) -> None:
    async with field_of(store) as alps:
        code = await ask_for_help(alps)
        await store.commit(_move_kit_2)
        alps.device = lambda number: Device(  # type: ignore[method-assign]
            number, number, number, f"kit {number}", f"30000000000000{number}"
        )
        await alps.sends(2, Entry(3, Message("man overboard"), int(START), sos=True))
        (second,) = await deliver_due(alps)
        if closed:
            await store.commit(lambda db: db.execute("UPDATE sos SET state = 'closed'") and None)
        else:
            await receive_answer(alps, f"OK {second}")
            await deliver_due(alps)
        assert await receive_answer(alps, "the helicopter is at the hut") == "ambiguous"
        assert (await deliver_due(alps))[0].endswith("Begin with the six digits of one.")
        for kit in (1, 2):
            come = said(await collect(alps.mailbox(kit)))
            assert not any("helicopter" in text for _, text in come)
        assert await alps.rows("SELECT id FROM sos_event WHERE detail LIKE '%helicopter%'") == []
        if not closed:
            assert (
                await receive_answer(alps, f"{code} the helicopter is at the hut") == "to the kit"
            )
            assert said(await collect(alps.mailbox(1)))[-1][1] == "the helicopter is at the hut"


async def test_code_of_two_workspaces_is_ambiguous(store: Store) -> None:
    async with field_of(store) as alps:
        code = await ask_for_help(alps)
        await store.commit(_move_kit_2)
        alps.device = lambda number: Device(  # type: ignore[method-assign]
            number, number, number, f"kit {number}", f"30000000000000{number}"
        )
        await alps.sends(2, Entry(3, Message("man overboard"), int(START), sos=True))
        await deliver_due(alps)
        await store.commit(lambda db: db.execute("UPDATE alarm_link SET code = ?", code) and None)
        assert await receive_answer(alps, f"OK {code}") == "ambiguous"
        assert await alps.rows("SELECT id FROM sos WHERE state <> 'open'") == []


async def test_replies_to_one_contact_are_limited(store: Store) -> None:
    async with field_of(store) as alps:
        await ask_for_help(alps)
        for _ in range(3 * texts_to_kits.REPLIES_MAX):
            await receive_answer(alps, "OK")
        ((replies,),) = await alps.rows("SELECT count(*) FROM alarm_message WHERE why = 'reply'")
        assert replies == texts_to_kits.REPLIES_MAX


async def test_contact_is_notified_again_until_the_sos_is_answered(store: Store) -> None:
    async with field_of(store) as alps:
        code = await ask_for_help(alps, tries=3, every=120)
        assert await deliver_due(alps) == []
        alps.now += 120
        (second,) = await deliver_due(alps)
        assert second != code
        # The code of either message counts.
        assert await receive_answer(alps, f"OK {code}") == "acknowledged"
        await deliver_due(alps)
        alps.now += 600
        assert await deliver_due(alps) == []
        shown = await store.read(lambda db: sos_desk.list_timeline(db, 1))
        handed = [each["detail"] for each in shown if each["event"] == "notified"]
        assert handed[1].endswith("(try 2 of 3)")


@pytest.mark.parametrize(("about", "rings"), [("sos", True), ("alarms", False), ("all", True)])
async def test_contact_is_notified_only_of_its_kind_of_alarm(
    store: Store, about: str, rings: bool
) -> None:
    async with field_of(store) as alps:
        await store.commit(
            lambda db: contacts.add_contact(
                db, 1, contacts.NewContact("Duty", PHONE, "sms", about=about), now=START
            )
        )
        await alps.sends(1, HELP)
        assert (len(await deliver_due(alps)) == 1) == rings
        events = [
            each["event"] for each in await store.read(lambda db: sos_desk.list_timeline(db, 1))
        ]
        assert ("nobody reached" in events) != rings


async def test_received_answers_are_forgotten_after_a_time(store: Store) -> None:
    async with field_of(store) as alps:
        await receive_answer(alps, "hello", "a")
        for before, left in ((alps.now, 1), (alps.now + 1, 0)):
            await store.commit(partial(forgetting.forget_remembered, before=before))
            assert await alps.rows("SELECT count(*) FROM contact_answer") == [(left,)]


async def test_answer_by_code_also_uses_up_the_link(store: Store) -> None:
    async with field_of(store) as alps:
        code = await ask_for_help(alps)
        await receive_answer(alps, f"OK {code}")
        link = await store.read(lambda db: alarm_link.find_by_code(db, code, 1))
        assert link is not None
        assert link.used == alps.now
