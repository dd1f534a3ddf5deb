"""The hub without an extension that notifies contacts."""

from __future__ import annotations

import json
from functools import partial
from math import inf

import pytest

from fieldagent.hub import part
from fieldagent.hub.contact.contract import ContactAnswer
from fieldagent.hub.field import kit_watch
from fieldagent.hub.field.kit_sms import KitSmsInbox
from fieldagent.hub.records import alarm
from fieldagent.hub.store.contract import Db, Store, insert
from fieldagent.hub.webhook import webhook_directory
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry
from tests.hub.claiming import claim
from tests.hub.field import START, field_of
from tests.hub.test_people import ADA, receipts
from tests.hub.test_sos_desk import HELP, desk


@pytest.fixture(autouse=True)
def _no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "list_hub_parts", list)
    monkeypatch.setattr(kit_watch, "list_hub_parts", list)


async def test_message_to_an_address_is_refused_with_the_reason(store: Store) -> None:
    async with field_of(store) as field:
        await field.sends(ADA, Entry(1, Message("Hi"), int(START), to="dora@example.org"))
        answers = await receipts(field, ADA)
        assert [(number, each.stage, each.text) for number, each in answers] == [
            (1, Stage.NOBODY, part.NO_ADDRESSES)
        ]


async def test_sos_is_posted_without_a_link_and_acknowledged_at_the_desk(store: Store) -> None:
    async with desk(store) as hub:
        made = webhook_directory.make_webhook("https://pager.example/")
        await store.commit(
            partial(webhook_directory.add_webhook, workspace=1, webhook=made, now=START)
        )
        await hub.alps.sends(1, HELP)
        address = "https://hub.example.org"
        (post,) = await store.commit(lambda db: claim(db, START + 1, desk=address))
        (event,) = json.loads(post.delivery.body)["payloads"][0]["events"]
        assert event["incident"]["desk"] == f"{address}/console/sos/1"
        assert "acknowledge" not in event["incident"]
        await hub.told("POST", "/api/sos/1/acknowledge")
        assert (await hub.told("GET", "/api/sos/1"))["state"] == "seen"


async def test_answer_of_a_contact_is_ignored(store: Store) -> None:
    async with field_of(store) as field:
        inbox = KitSmsInbox(store, field.mobile_originated(), None, clock=field.clock)
        await inbox.receive_message(ContactAnswer("sms", "1", "+41791234567", "OK 471123"))
        await inbox.report("1", reached=True)
        assert await field.rows("SELECT id FROM contact_answer") == []


async def test_contacts_of_an_earlier_program_do_not_count_as_reachable(store: Store) -> None:
    def add(db: Db) -> None:
        columns = ("workspace", "kind", "name", "address", "wait", "created")
        insert(db, "alarm_contact", columns, [(1, "email", "Olga", "olga@example.org", 0, START)])

    def reachable_until(db: Db) -> float:
        return alarm.compute_reachable_until(db, 1, "sos")

    async with field_of(store):
        await store.commit(add)
        assert await store.read(reachable_until) == inf
        (due_at, mark), *_ = kit_watch.list_checks()
        assert await store.read(due_at) <= START
        (line,) = await store.commit(partial(mark, now=START))
        assert line.startswith("1 contact cannot be notified")
        assert await store.read(reachable_until) == 0
        assert await store.read(due_at) == inf
