"""Answers from an address to which a kit has written, on both engines. Then by mail from
third-party servers, aiosmtpd and pymap, with a real kit and a real hub.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from fieldagent.extensions.desk.hub import answers, correspondence, outward
from fieldagent.hub.contact.contract import ContactAnswer
from fieldagent.hub.contract import Device
from fieldagent.hub.field import texts_to_kits
from fieldagent.hub.store.contract import Store
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry, Receipt
from tests.extensions.desk.test_answers import PHONE, _move_kit_2, _number_on, ask_for_help
from tests.extensions.desk.test_imap import mail_from, mail_server
from tests.hub.field import Field, collect, field_of, said
from tests.hub.raising import kit_of, settle_in
from tests.hub.relay import mail_relay
from tests.hub.test_people import ADA, BEN
from tests.hub.test_people_journey import stages
from tests.processes import agent, hub, until

DORA = "dora@example.org"


async def write_to_address(field: Field, kit: int, number: int, to: str = PHONE) -> str:
    """Let a kit write to an address and the service accept it, and return the identity of
    the mail.
    """
    await field.sends(kit, Entry(number, Message("Back on Sunday"), int(field.now), to=to))
    (each,) = [
        each
        for each in await field.store.commit(lambda db: outward.claim_items(db, field.now, 9))
        if not each.text
    ]
    taken = partial(outward.mark_accepted, item=each, service="the relay", now=field.now)
    await field.store.commit(taken)
    return each.message_id


async def receive_answer(field: Field, text: str, to: str = "") -> str:
    field.now += 1
    kind, sender = ("email", DORA) if to else ("sms", PHONE)
    reply = ContactAnswer(kind, f"{kind} {field.now}", sender, text, to)
    return await field.store.commit(lambda db: answers.process_answer(db, reply, field.now))


async def list_replies(field: Field) -> list[str]:
    """Return the queued texts to the address that answered."""
    rows = await field.rows("SELECT text FROM outward WHERE text <> '' ORDER BY id")
    return [text for (text,) in rows]


class Arrivals(NamedTuple):
    """The items that a kit got."""

    words: list[tuple[str, str]]
    """Senders and texts."""
    read: list[tuple[int, str]]
    """Numbers of its own items that were read, and the readers."""


async def collect_arrivals(field: Field, kit: int) -> Arrivals:
    names = dict(await field.rows("SELECT id, name FROM member"))
    mailbox = field.mailbox(kit)
    await mailbox.record_hello(70_000_000 + kit)
    envelopes = await collect(mailbox)
    entries = [entry for envelope in envelopes for entry in envelope.entries]
    read = [
        (each.sequence, each.content.text)
        for each in entries
        if isinstance(each.content, Receipt) and each.content.stage is Stage.READ
    ]
    return Arrivals([(names[sender], text) for sender, text in said(envelopes)], read)


async def prepare_numbers(field: Field) -> Field:
    await field.store.commit(_number_on)
    return field


async def test_sms_answer_goes_to_the_kit_that_wrote_to_the_number(store: Store) -> None:
    async with field_of(store) as field:
        await prepare_numbers(field)
        await write_to_address(field, ADA, 1)
        await write_to_address(field, ADA, 2)
        assert await receive_answer(field, "OK see you then") == "to the kit"
        # The answer does not show which of the two was meant: one has been read.
        assert await collect_arrivals(field, ADA) == ([(PHONE, "OK see you then")], [(1, PHONE)])
        assert await collect_arrivals(field, BEN) == ([], [])
        assert (await list_replies(field))[0].startswith("Your message is sent to Ada")
        assert await receive_answer(field, "bring bread") == "to the kit"
        assert len(await list_replies(field)) == 1


async def test_answer_to_several_kits_needs_the_name_of_one(store: Store) -> None:
    async with field_of(store) as field:
        await prepare_numbers(field)
        await write_to_address(field, ADA, 1)
        await write_to_address(field, BEN, 1)
        assert await receive_answer(field, "see you then") == "ambiguous"
        assert await receive_answer(field, "Benno: see you") == "ambiguous"
        assert await receive_answer(field, "ben: see you then") == "to the kit"
        assert await collect_arrivals(field, BEN) == ([(PHONE, "see you then")], [(1, PHONE)])
        assert await collect_arrivals(field, ADA) == ([], [])
        assert "Begin with one of the names: Ada, Ben." in (await list_replies(field))[0]


async def test_answer_expected_by_two_workspaces_is_ambiguous(store: Store) -> None:
    async with field_of(store) as field:
        code = await ask_for_help(field)
        await store.commit(_move_kit_2)
        field.device = lambda number: Device(  # type: ignore[method-assign]
            number, number, number, f"kit {number}", f"30000000000000{number}"
        )
        await write_to_address(field, BEN, 1)
        assert await receive_answer(field, "see you then") == "ambiguous"
        ((text,),) = await field.rows("SELECT text FROM alarm_message WHERE why = 'reply'")
        assert text.endswith("the six digits of the alarm, or with a name: Ben.")
        for kit in (ADA, BEN):
            assert "see you then" not in [
                text for _, text in (await collect_arrivals(field, kit)).words
            ]
        assert await receive_answer(field, "Ben: see you then") == "to the kit"
        assert await receive_answer(field, f"{code} we come") == "to the kit"
        assert [text for _, text in (await collect_arrivals(field, BEN)).words] == [
            "Ben: see you then"
        ]
        assert [text for _, text in (await collect_arrivals(field, ADA)).words] == ["we come"]


async def test_mail_answer_goes_to_the_kit_of_the_original_mail(store: Store) -> None:
    async with field_of(store) as field:
        await prepare_numbers(field)
        first = await write_to_address(field, ADA, 1, DORA)
        second = await write_to_address(field, ADA, 2, DORA)
        await write_to_address(field, BEN, 1, DORA)
        assert await receive_answer(field, "yes", second) == "to the kit"
        assert await collect_arrivals(field, ADA) == ([(DORA, "yes")], [(2, DORA)])
        assert await receive_answer(field, "no", first) == "to the kit"
        assert await collect_arrivals(field, ADA) == ([(DORA, "no")], [(1, DORA)])
        assert await receive_answer(field, "", first) == "empty"
        assert await receive_answer(field, "hello", "0b0e3c1e-7d3c-4c39-9d5e-2f6f0a7c1d11") == (
            "to no message of this hub"
        )


async def test_answer_to_an_open_incident_has_precedence(store: Store) -> None:
    async with field_of(store) as field:
        code = await ask_for_help(field)
        await write_to_address(field, BEN, 1)
        assert await receive_answer(field, f"OK {code}") == "acknowledged"
        assert [who for who, _ in (await collect_arrivals(field, BEN)).words] == ["Ada"]


@pytest.mark.parametrize(
    ("length", "outcome"),
    [
        (texts_to_kits.SATELLITE_BYTES, "to the kit"),
        (texts_to_kits.SATELLITE_BYTES + 1, "not sent"),
    ],
)
async def test_answer_too_long_for_satellite_is_rejected_with_a_notice(
    store: Store, length: int, outcome: str
) -> None:
    async with field_of(store) as field:
        await prepare_numbers(field)
        await write_to_address(field, ADA, 1)
        assert await receive_answer(field, "x" * length) == outcome
        words, read = await collect_arrivals(field, ADA)
        assert (len(words), len(read)) == ((1, 1) if outcome == "to the kit" else (0, 0))
        if outcome == "not sent":
            why = f"Nothing sent: too long by 1 bytes of {length}. Write less."
            assert await list_replies(field) == [why]


async def test_answers_to_a_kit_are_limited_per_day(store: Store) -> None:
    async with field_of(store) as field:
        await prepare_numbers(field)
        await write_to_address(field, ADA, 1)
        outcomes = [await receive_answer(field, f"I am away {n}") for n in range(70)]
        assert outcomes == ["to the kit"] * correspondence.LETTERS_PER_DAY_MAX + ["limited"] * (
            70 - correspondence.LETTERS_PER_DAY_MAX
        )
        assert len(await list_replies(field)) <= texts_to_kits.REPLIES_MAX


async def test_answer_after_the_reply_window_is_not_delivered(store: Store) -> None:
    async with field_of(store) as field:
        await prepare_numbers(field)
        assert await receive_answer(field, "hello?") == "from an unknown sender"
        await write_to_address(field, ADA, 1)
        field.now += correspondence.REPLY_WINDOW_S + 1
        assert await receive_answer(field, "hello?") == "from an unknown sender"
        assert await list_replies(field) == []


@pytest.mark.full
def test_mail_correspondence_works_between_real_kit_and_mail_program(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with mail_relay() as relay, mail_server(tmp_path) as (box, settings):
        lines = {"database": database, **relay.settings, **settings}
        with (
            hub(tmp_path, lines) as running,
            agent(tmp_path, {**kit_of(running, token), "inbound-hook": None}) as kit,
        ):
            body = {"message": {"content": "Back on Sunday"}, "to": DORA}
            sent = kit.call("POST", "/api/package", body).body["id"]
            mail = relay.mail()
            assert "Short answers reach Ada." in mail.get_content()
            back = str(mail["Reply-To"])
            box.deliver(mail_from(DORA, "Bring bread.\n\n-- \nDora", to=back))

            def inbox() -> list[tuple[str, str]]:
                listed = kit.call("GET", "/api/inbound").body["payloads"]
                return [
                    (payload["identity"]["name"], event["content"])
                    for each in listed
                    for payload in each["body"]["payloads"]
                    for event in payload["events"]
                    if "content" in event
                ]

            until(lambda: inbox() == [(DORA, "Bring bread.")])
            until(lambda: stages(kit, sent)[-1] == f"read by {DORA}")
            assert relay.mail(2).get_content().startswith("Your message is sent to Ada")
            kit.call("POST", "/api/package", {"message": {"content": "Two?"}, "to": DORA})
            third = relay.mail(3)
            assert (third["To"], "Two?" in third.get_content()) == (DORA, True)
            box.deliver(mail_from(DORA, "x" * 3_000, to=str(third["Reply-To"])))
            assert "too long by 1000 bytes of 3000" in relay.mail(4).get_content()
