"""The check if a dispatcher can be reached for an SOS, and the consequences if not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from fieldagent.extensions.desk.hub import contacts, notification
from fieldagent.hub.access import directory
from fieldagent.hub.access.caller import ANSWERING, ROLES
from fieldagent.hub.api import sos_desk
from fieldagent.hub.field import kit_watch
from fieldagent.hub.records import alarm
from fieldagent.hub.records.lease import CONSOLE_RETURN_S, LEASE_S, Leases
from fieldagent.hub.store.contract import Db, Store
from tests.hub.field import START, Field, field_of
from tests.hub.test_sos_desk import HELP, desk

MOMENT = 2 * alarm.FIRST_MESSAGE_DELAY_S
DUTY = contacts.NewContact("Duty", "duty@example.org", after=600)
LATER = partial(contacts.add_contact, workspace=1, new=DUTY)


async def list_events(alps: Field) -> list[str]:
    timeline = await alps.store.read(lambda db: sos_desk.list_timeline(db, 1))
    return [each["event"] for each in timeline]


async def count_due(alps: Field) -> int:
    """Return the number of messages that are due."""
    now = alps.now + MOMENT
    return len(await alps.store.commit(lambda db: notification.claim_notifications(db, now, 9, "")))


@pytest.mark.parametrize("role", ROLES)
async def test_open_console_of_a_dispatcher_delays_the_contacts(store: Store, role: str) -> None:
    async with field_of(store) as alps:
        await store.commit(lambda db: directory.set_role(db, 1, 2, role, now=START))
        await store.commit(partial(LATER, now=START))
        leases = Leases(store, "here", clock=alps.clock)
        async with leases.hold_console(1, 2):
            await alps.sends(1, HELP)
            reached = role in ANSWERING
            assert ("nobody reached" not in await list_events(alps)) == reached
            assert await count_due(alps) == int(not reached)


async def test_contacts_are_notified_after_the_only_console_closes(store: Store) -> None:
    async with field_of(store) as alps:
        await store.commit(lambda db: directory.set_role(db, 1, 2, "dispatcher", now=START))
        await store.commit(partial(LATER, now=START))
        leases = Leases(store, "here", clock=alps.clock)
        async with leases.hold_console(1, 2):
            await alps.sends(1, HELP)
        # A page that reloads returns within that time.
        assert await store.read(alarm.compute_next_look) == alps.now + CONSOLE_RETURN_S
        await store.commit(lambda db: alarm.notify_of_open(db, alps.now))
        assert await list_events(alps) == ["raised"]
        alps.now += CONSOLE_RETURN_S
        for _ in range(2):
            await store.commit(lambda db: alarm.notify_of_open(db, alps.now))
        assert await list_events(alps) == ["raised", "nobody reached"]
        assert await count_due(alps) == 1


async def test_consoles_of_a_dead_hub_process_do_not_count(store: Store, database: str) -> None:
    if not database.startswith("postgresql:"):
        pytest.skip("a file is of one process, which forgets them as it begins")
    async with field_of(store) as alps:
        await store.commit(lambda db: directory.set_role(db, 1, 2, "dispatcher", now=START))
        dead = Leases(store, "dead", clock=alps.clock)
        async with dead.hold_console(1, 2):
            await alps.sends(1, HELP)
            alps.now += LEASE_S
            await store.commit(lambda db: alarm.notify_of_open(db, alps.now))
            assert await list_events(alps) == ["raised", "nobody reached"]


def mark_browser_failed(db: Db) -> None:
    contacts.record_attempt(db, 1, "refused", START)


def make_ben_a_member(db: Db) -> None:
    directory.set_role(db, 1, 2, "member", now=START)


def disable_ben(db: Db) -> None:
    directory.set_disabled(db, "member", 2, START, now=START)


@pytest.mark.parametrize("change", [None, mark_browser_failed, make_ben_a_member, disable_ben])
async def test_browser_with_web_push_counts_while_working_and_permitted(
    store: Store, change: Callable[[Db], None] | None
) -> None:
    async with field_of(store) as alps:
        await store.commit(lambda db: directory.set_role(db, 1, 2, "dispatcher", now=START))
        subscription = '{"endpoint": "https://push.example.org/1", "p256dh": "", "auth": ""}'
        await store.commit(
            lambda db: contacts.add_browser(db, 1, 2, "Ben's browser", subscription, now=START)
        )
        if change is not None:
            await store.commit(change)
        await alps.sends(1, HELP)
        assert ("nobody reached" in await list_events(alps)) == (change is not None)
        # A failed browser is tried in any case.
        assert await count_due(alps) == int(change in (None, mark_browser_failed))


async def test_handover_request_of_a_closed_sos_is_cancelled(store: Store) -> None:
    async with desk(store) as hub:
        subscribe = partial(
            contacts.add_browser, workspace=1, member=3, name="b", subscription="{}"
        )
        await store.commit(partial(subscribe, now=hub.alps.now))
        await hub.alps.sends(1, HELP)
        await hub.told("POST", "/api/sos/1/acknowledge")
        await hub.told("POST", "/api/sos/1/hand-over", {"to": "3"})
        await hub.told("POST", "/api/sos/1/close", {"reason": "in hospital"})
        assert (
            await store.commit(
                lambda db: notification.claim_notifications(db, hub.alps.now + 60, 9, "")
            )
            == []
        )


def test_hub_that_notifies_contacts_marks_no_contact_as_failing() -> None:
    assert kit_watch.CONTACTS_CHECK not in kit_watch.list_checks()
