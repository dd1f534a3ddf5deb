"""Quiet hours: alarms that can wait are sent in the morning in one message."""

from __future__ import annotations

import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fieldagent.extensions.desk.hub import contacts, notification
from fieldagent.extensions.desk.hub.notification import Notification
from fieldagent.hub.records import alarm, ledger, quiet
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.records.quiet import WrongHours, parse_hours
from fieldagent.hub.store.contract import Store
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import SOS_PRIORITY, Message
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult
from tests.hub.field import Field, field_of
from tests.hub.test_console import settle_in
from tests.hub.test_sos_desk import HELP
from tests.postgres import new_database
from tests.processes import MODULE, administer
from tests.running import running

HANDED = HandoverResult(HandoverOutcome.HANDED)
FAILED = HandoverResult(HandoverOutcome.FAILED, "no network")
HOURS = "22:00-06:00 Europe/Zurich"


def parse_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


NIGHT, MORNING = parse_time("2026-11-26T23:30+01:00"), parse_time("2026-11-27T06:00+01:00")


@pytest.mark.parametrize(
    ("hours", "now", "end"),
    [
        (HOURS, "2026-11-26T21:59+01:00", None),
        (HOURS, "2026-11-26T22:00+01:00", "2026-11-27T06:00+01:00"),
        (HOURS, "2026-11-27T05:59+01:00", "2026-11-27T06:00+01:00"),
        (HOURS, "2026-11-27T06:00+01:00", None),
        ("12:00-14:00 UTC", "2026-11-26T13:00+00:00", "2026-11-26T14:00+00:00"),
        ("12:00-14:00 UTC", "2026-11-26T15:00+00:00", None),
        # Summer time begins: 2:00 is 3:00. It ends: 3:00 is 2:00 again.
        (HOURS, "2027-03-28T01:30+01:00", "2027-03-28T06:00+02:00"),
        ("22:00-02:30 Europe/Zurich", "2026-10-25T02:15+02:00", "2026-10-25T02:30+02:00"),
        ("22:00-02:30 Europe/Zurich", "2026-10-25T02:15+01:00", "2026-10-25T02:30+01:00"),
        # On that day no clock shows 2:30.
        ("22:00-02:30 Europe/Zurich", "2027-03-28T00:00+01:00", "2027-03-28T03:30+02:00"),
        ("22:00-02:30 Europe/Zurich", "2027-03-28T01:45+01:00", "2027-03-28T03:30+02:00"),
        # One hour later they have begun again.
        ("02:45-02:30 Europe/Zurich", "2027-03-27T02:50+01:00", "2027-03-29T02:30+02:00"),
    ],
)
def test_end_of_quiet_hours_is_computed_in_each_time_zone(
    hours: str, now: str, end: str | None
) -> None:
    assert parse_hours(hours).end(parse_time(now)) == (None if end is None else parse_time(end))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("22-6 UTC", "is not quiet hours: use the form 22:00-06:00"),
        ("22:00-24:00 UTC", "is not quiet hours"),
        ("22:00-22:00 UTC", "begin and end at the same time"),
        ("22:00-06:00 Europe/Zuerich", "does not know the time zone 'Europe/Zuerich'"),
        ("22:00-06:00 ../etc/passwd", "is not quiet hours"),
        ("22:00-06:00 Europe", "does not know the time zone"),
    ],
)
def test_invalid_quiet_hours_are_rejected_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(WrongHours, match=why):
        parse_hours(text)


async def add_duty_contact(alps: Field, own: str = "", **how: Any) -> int:
    """Add a contact that gets messages immediately, at night."""
    alps.now = NIGHT
    new = contacts.NewContact("Duty", "duty@example.org")._replace(**how)
    contact = await alps.store.commit(lambda db: contacts.add_contact(db, 1, new, now=NIGHT))
    await alps.store.commit(lambda db: contacts.set_workspace_hours(db, 1, HOURS, NIGHT))
    await alps.store.commit(lambda db: contacts.set_contact_hours(db, 1, contact, own, NIGHT))
    return contact


async def raise_alarm(alps: Field, kind: str, device: int = 1) -> int:
    posting = Posting(1, device, Message(f"{kind} it is"), int(alps.now), SOS_PRIORITY, sos=True)
    return await alps.store.commit(
        lambda db: ledger.raise_alarm(db, posting, device, alps.now, kind)
    )


async def claim_due(alps: Field, store: Store | None = None) -> list[Notification]:
    return await (store or alps.store).commit(
        lambda db: notification.claim_notifications(
            db, alps.now + alarm.FIRST_MESSAGE_DELAY_S, 9, ""
        )
    )


@pytest.mark.parametrize("kind", ["sos", "overdue"])
async def test_sos_and_overdue_alarms_ignore_quiet_hours(store: Store, kind: str) -> None:
    async with field_of(store) as alps:
        await add_duty_contact(alps)
        if kind == "sos":
            await alps.sends(1, HELP)
        else:
            await raise_alarm(alps, kind)
        (message,) = await claim_due(alps)
        assert message.notice.alarm == ("" if kind == "sos" else kind)


async def test_alarms_of_the_night_are_sent_in_one_morning_message(store: Store) -> None:
    async with field_of(store) as alps:
        await add_duty_contact(alps)
        first = await raise_alarm(alps, "fence")
        alps.now += 3600
        second = await raise_alarm(alps, "operator", 2)
        third = await raise_alarm(alps, "watch", 3)
        assert await claim_due(alps) == []
        # No other contact is present, which does not speed up an alarm that waits for the morning.
        await store.commit(lambda db: alarm.notify_of_open(db, alps.now))
        assert await claim_due(alps) == []
        # An alarm that was answered meanwhile is not sent.
        await store.commit(lambda db: alarm.cancel_messages(db, third))
        alps.now = MORNING
        (message,) = await claim_due(alps)
        assert message.notice.subject == "2 alarms in quiet hours"
        assert message.notice.alarm == "fence"
        assert f"Fence {first} of kit 1: fence it is" in message.notice.text
        assert f"Satellite operator {second} of kit 2: operator it is" in message.notice.text
        assert await claim_due(alps) == []
        # The message failed and is sent again as one. Then both incidents have it in their
        # timelines.
        await store.commit(lambda db: notification.record_result(db, message, FAILED, alps.now))
        alps.now += 3600
        (again,) = await claim_due(alps)
        assert len(again.beside) == 1
        await store.commit(lambda db: notification.record_result(db, again, HANDED, alps.now))
        events = await alps.rows("SELECT sos FROM sos_event WHERE event = 'notified' ORDER BY sos")
        assert [each for (each,) in events] == [first, second]
        assert await claim_due(alps) == []


async def test_contact_quiet_hours_override_those_of_the_workspace(store: Store) -> None:
    async with field_of(store) as alps:
        await add_duty_contact(alps, own=quiet.NO_QUIET_HOURS)
        await raise_alarm(alps, "fence")
        assert len(await claim_due(alps)) == 1


async def test_alarms_by_day_are_sent_one_by_one(store: Store) -> None:
    async with field_of(store) as alps:
        await add_duty_contact(alps)
        alps.now = MORNING + 3600
        for device in (1, 2):
            await raise_alarm(alps, "fence", device)
        assert [each.beside for each in await claim_due(alps)] == [(), ()]


async def test_step_that_falls_into_quiet_hours_waits(store: Store) -> None:
    async with field_of(store) as alps:
        await add_duty_contact(alps, after=600)
        alps.now = parse_time("2026-11-26T21:55+01:00")
        await raise_alarm(alps, "fence")
        rows = await alps.rows("SELECT not_before, held FROM alarm_message")
        assert rows == [(MORNING + 600, 1)]


async def test_unattended_alarm_is_not_moved_into_quiet_hours(store: Store) -> None:
    """The message is sent at half past six instead of half past eleven."""
    async with field_of(store) as alps:
        await add_duty_contact(alps, after=7 * 3600)
        await raise_alarm(alps, "fence")
        await store.commit(lambda db: alarm.notify_of_open(db, alps.now))
        assert await claim_due(alps) == []
        alps.now += 7 * 3600
        assert len(await claim_due(alps)) == 1


async def test_further_try_that_falls_into_quiet_hours_waits(store: Store) -> None:
    async with field_of(store) as alps:
        await add_duty_contact(alps, tries=3, every=600)
        alps.now = parse_time("2026-11-26T21:55+01:00")
        await raise_alarm(alps, "fence")
        (message,) = await claim_due(alps)
        await store.commit(lambda db: notification.record_result(db, message, HANDED, alps.now))
        alps.now = NIGHT
        assert await claim_due(alps) == []
        alps.now = MORNING
        (message,) = await claim_due(alps)
        assert message.round == 2
        # By day the next try comes at its usual time.
        await store.commit(lambda db: notification.record_result(db, message, HANDED, alps.now))
        alps.now += 600
        assert [each.round for each in await claim_due(alps)] == [3]


async def test_message_that_failed_in_the_evening_is_retried_in_the_morning(store: Store) -> None:
    async with field_of(store) as alps:
        await add_duty_contact(alps)
        alps.now = parse_time("2026-11-26T21:59:30+01:00")
        await raise_alarm(alps, "fence")
        (message,) = await claim_due(alps)
        alps.now += 60
        text = await store.commit(
            lambda db: notification.record_result(db, message, FAILED, alps.now)
        )
        assert text.endswith(f"tried again in {MORNING - alps.now:.0f} s")
        alps.now = MORNING - alarm.FIRST_MESSAGE_DELAY_S - 1
        assert await claim_due(alps) == []
        alps.now = MORNING
        assert len(await claim_due(alps)) == 1


async def test_further_try_of_an_sos_ignores_quiet_hours(store: Store) -> None:
    async with field_of(store) as alps:
        await add_duty_contact(alps, tries=2, every=600)
        await alps.sends(1, HELP)
        (message,) = await claim_due(alps)
        await store.commit(lambda db: notification.record_result(db, message, HANDED, alps.now))
        alps.now += 600
        assert [each.round for each in await claim_due(alps)] == [2]


async def test_only_one_hub_sends_the_morning_message(postgres: str) -> None:
    database = new_database(postgres)
    first, second = open_store(database), open_store(database)
    async with field_of(first) as alps, running(second):
        await add_duty_contact(alps)
        for device in (1, 2, 3):
            await raise_alarm(alps, "fence", device)
        alps.now = MORNING
        messages = [*await claim_due(alps), *await claim_due(alps, second)]
        assert [len(each.beside) for each in messages] == [2]
    first.close()
    second.close()


def test_quiet_hours_are_set_from_the_command_line(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    administer(database, "contact", "add", "Duty", "duty@example.org")
    shown = administer(
        database, "contact", "quiet", "set", "22:00-06:00", "--zone", "Europe/Zurich"
    )
    assert [each["quiet"] for each in shown] == [HOURS, f"{HOURS} (the workspace's)"]
    shown = administer(database, "contact", "quiet", "set", "none", "--contact", "1")
    assert shown[1]["quiet"] == "none"
    assert administer(database, "contact", "quiet", "inherit", "1")[1]["quiet"].startswith("22:00")
    assert administer(database, "contact", "quiet", "set", "none")[0]["quiet"] == "none"
    wrong = (
        "contact",
        "quiet",
        "set",
        "22:00-06:00",
        "--zone",
        "Europe/Zuerich",
        "--database",
        database,
    )
    done = subprocess.run([*MODULE, "hub", *wrong], capture_output=True, text=True)
    assert done.returncode and "does not know the time zone 'Europe/Zuerich'" in done.stderr
