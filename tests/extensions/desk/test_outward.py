"""A message from a kit to an e-mail address: delivered to a third-party mail relay, with no further
state.

Real hub, real kit, aiosmtpd.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import trio

from fieldagent.extensions.desk.hub import outward
from fieldagent.hub.contact.contract import Notice
from fieldagent.hub.contact.registry import get_contact_kinds
from fieldagent.hub.store.contract import Store
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Message
from fieldagent.system.supervisor import log_fault
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult
from fieldagent.wire.envelope import Entry
from tests.hub.field import START, field_of
from tests.hub.raising import kit_of, settle_in
from tests.hub.relay import mail_relay
from tests.hub.test_people import ADA, receipts
from tests.hub.test_people_journey import stages
from tests.processes import agent, hub, until, until_async

DORA = "dora@example.org"


def test_mail_of_a_kit_is_handed_over_without_read_stage(tmp_path: Path, database: str) -> None:
    token = settle_in(database)
    with mail_relay() as relay:
        relay.answers = ["451 later, please"]
        with (
            hub(tmp_path, {"database": database, **relay.settings}) as running,
            agent(tmp_path, kit_of(running, token)) as kit,
        ):
            sent = kit.call(
                "POST", "/api/package", {"message": {"content": "Back on Sunday"}, "to": DORA}
            ).body
            handed = f"handed over to the mail relay, for {DORA}"
            mail = relay.mail()
            assert (mail["To"], mail["Subject"]) == (DORA, "Message from Ada")
            assert "Back on Sunday" in mail.get_content()
            assert "Answers do not reach the sender." in mail.get_content()
            until(lambda: stages(kit, sent["id"]) == ["at the hub", handed])
            place = {"location": {"latitude": 46.5, "longitude": 7.25}, "to": DORA}
            kit.call("POST", "/api/package", place)
            assert "mlat=46.5&mlon=7.25" in relay.mail(2).get_content()
            raw = {"data": {"payload": "AAEC"}, "to": DORA}
            lost = kit.call("POST", "/api/package", raw).body["id"]
            until(
                lambda: "binary data cannot be sent to an address as text" in stages(kit, lost)[-1]
            )


@pytest.mark.parametrize(
    ("to", "why"),
    [(DORA, "set smtp-host"), ("+41790001122", ""), ("nobody@", "neither an e-mail address")],
)
def test_message_to_an_unsupported_address_is_reported_to_the_sender(
    tmp_path: Path, to: str, why: str
) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with (
        hub(tmp_path, {"database": database}) as running,
        agent(tmp_path, kit_of(running, token)) as kit,
    ):
        body = {"message": {"content": "hello"}, "to": to}
        sent = kit.call("POST", "/api/package", body).body["id"]
        until(lambda: "cannot be reached" in stages(kit, sent)[-1])
        assert why in stages(kit, sent)[-1]


async def test_messages_of_a_kit_to_addresses_are_limited_per_day(store: Store) -> None:
    async with field_of(store) as field:
        for number in range(outward.ITEMS_PER_DAY_MAX + 1):
            await field.sends(ADA, Entry(number + 1, Message("Hi"), int(START), to=DORA))
        answers = await receipts(field, ADA)
        assert [(number, each.stage, each.text) for number, each in answers] == [
            (outward.ITEMS_PER_DAY_MAX + 1, Stage.NOBODY, outward.TOO_MANY_REASON)
        ]


async def test_message_with_an_expired_claim_is_accepted_once(store: Store) -> None:
    """A slow hub finds that its claim has expired, and the other hub's result counts."""
    async with field_of(store) as field:
        await field.sends(ADA, Entry(1, Message("Hi"), int(START), to=DORA))
        first = await store.commit(lambda db: outward.claim_items(db, START, 4))
        assert await store.commit(lambda db: outward.claim_items(db, START + 1, 4)) == []
        later = START + outward.CLAIM_S + 1
        second = await store.commit(lambda db: outward.claim_items(db, later, 4))
        assert first[0].message_id == second[0].message_id
        for each in (second[0], first[0]):
            await store.commit(
                partial(outward.mark_accepted, item=each, service="the relay", now=later)
            )
        assert [each.stage for _, each in await receipts(field, ADA)] == [Stage.HANDED_OVER]


async def test_messages_behind_a_slow_service_are_not_claimed(store: Store) -> None:
    """A claim could expire before the message's turn, and another hub would send the message
    too.
    """
    async with field_of(store) as field:
        for number in range(3):
            await field.sends(ADA, Entry(number + 1, Message("Hi"), int(START), to=DORA))
        claimed: list[int] = []

        async def tell(kind: str, address: str, notice: Notice) -> HandoverResult:
            sql = "SELECT count(*) FROM outward WHERE state = 'waiting' AND claimed_until > ?"
            ((many,),) = await field.rows(sql, field.now)
            claimed.append(many)
            field.now += 30
            return HandoverResult(HandoverOutcome.HANDED)

        own = {"smtp-host": "relay", "smtp-from": "hub@example.org"}
        reach = Mock(
            kinds=get_contact_kinds(), own=own, send_notice=tell, is_answered=lambda kind: False
        )
        run = partial(outward.run, store, reach, clock=field.clock, note_fault=log_fault)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await until_async(lambda: len(claimed) == 3)
            nursery.cancel_scope.cancel()
        assert claimed == [1, 1, 1]
