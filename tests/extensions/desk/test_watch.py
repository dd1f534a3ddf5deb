"""The watch at the desk, its handover, and the alarm if no dispatcher is on watch."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fieldagent.extensions.desk.hub import shifts
from fieldagent.extensions.desk.hub.shifts import ALARM_AFTER_S, Hours
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records import sos
from fieldagent.hub.store.contract import Db, Store
from tests.hub.field import START, Field, field_of
from tests.hub.test_console import call, settle_in, sign_in
from tests.processes import administer, hub

HOUR = 3600.0
NOON = 1_790_078_400.0
"""Unix time of a noon."""


@pytest.mark.parametrize(
    ("hours", "at", "holds", "change"),
    [
        (Hours(360, 1320), 0, True, 10 * HOUR),
        (Hours(360, 720), 0, False, 18 * HOUR),
        (Hours(720, 780), 0, True, HOUR),
        (Hours(1320, 360), 0, False, 10 * HOUR),
        (Hours(1320, 360), 11 * HOUR, True, 18 * HOUR),
        (Hours(1320, 360), 13 * HOUR, True, 18 * HOUR),
        (Hours(0, 0), 0, True, None),
    ],
)
def test_watch_hours_can_cross_midnight(
    hours: Hours, at: float, holds: bool, change: float
) -> None:
    assert hours.is_within(NOON + at) is holds
    expected = float("inf") if change is None else NOON + change
    assert hours.compute_next_change(NOON + at) == expected


async def require_watch(alps: Field) -> None:
    """Make Ben and Cleo dispatchers, with a watch required at all hours."""

    def settle(db: Db) -> None:
        for member in (2, 3):
            directory.set_role(db, 1, member, "dispatcher", now=alps.now)

    await alps.store.commit(settle)


async def run_action(alps: Field, deed: Any, *what: Any) -> None:
    await alps.store.commit(lambda db: deed(db, 1, *what, alps.now))


async def run_check(alps: Field) -> list[str]:
    """Check as the hub does, if there is a due time."""
    if await alps.store.read(shifts.compute_next_due) > alps.now:
        return []
    return await alps.store.commit(lambda db: shifts.check_watches(db, alps.now))


async def on_watch(alps: Field) -> list[tuple[str, str | None, str]]:
    standing = await alps.store.read(lambda db: shifts.describe_watch(db, 1, alps.now))
    return [
        (each["user"]["name"], (each["handsOverTo"] or {}).get("name"), each["note"])
        for each in standing["onWatch"]
    ]


async def list_alarms(alps: Field) -> list[tuple[str, str]]:
    incidents = await alps.store.read(
        lambda db: sos.list_sos(db, workspace=1, state=None, before=99, limit=9)
    )
    return [(each.kind, each.state) for each in incidents]


async def test_watch_handover_is_complete_after_takeover(store: Store) -> None:
    async with field_of(store) as alps:
        await require_watch(alps)
        await run_action(alps, shifts.take_watch, 2, 8 * HOUR)
        assert await on_watch(alps) == [("Ben", None, "")]
        await run_action(alps, shifts.hand_over, 2, 3, "Ada is late at the hut")
        assert await on_watch(alps) == [("Ben", "Cleo", "Ada is late at the hut")]
        alps.now += HOUR
        await run_action(alps, shifts.take_watch, 3, 8 * HOUR)
        assert await on_watch(alps) == [("Cleo", None, "")]
        standing = await store.read(lambda db: shifts.describe_watch(db, 1, alps.now))
        (before,) = standing["before"]
        assert (before["ended"], before["note"]) == (alps.now, "Ada is late at the hut")
        # Two may be on watch. One of them ends it, and the other's time is over.
        await run_action(alps, shifts.take_watch, 2, 2 * HOUR)
        await run_action(alps, shifts.end_watch, 3, "")
        assert await on_watch(alps) == [("Ben", None, "")]
        alps.now += 2 * HOUR
        assert await on_watch(alps) == []


@pytest.mark.parametrize(
    ("deed", "what", "why"),
    [
        (shifts.take_watch, (1, HOUR), "cannot answer an SOS here"),
        (shifts.hand_over, (2, 3, ""), "only a user on watch"),
        (shifts.hand_over, (2, 1, ""), "cannot answer an SOS here"),
        (shifts.hand_over, (2, 2, ""), "cannot hand over to yourself"),
        (shifts.end_watch, (2, ""), "this user is not on watch"),
    ],
)
async def test_invalid_watch_action_is_rejected_with_the_reason(
    store: Store, deed: Any, what: Any, why: str
) -> None:
    async with field_of(store) as alps:
        await require_watch(alps)
        with pytest.raises(Refused, match=why):
            await run_action(alps, deed, *what)


async def test_each_gap_in_the_watch_raises_one_alarm(store: Store) -> None:
    async with field_of(store) as alps:
        await require_watch(alps)
        alps.now = NOON
        await run_action(alps, shifts.take_watch, 2, HOUR)
        await run_action(alps, shifts.set_hours, Hours(360, 1320))
        assert await run_check(alps) == []
        # Ben's time is over. Five minutes remain for a late dispatcher.
        alps.now += HOUR
        (warning,) = await run_check(alps)
        assert warning == "no one is on watch in Alps; the alarm is raised in 5 min"
        alps.now += ALARM_AFTER_S - 1
        assert await run_check(alps) == [] and await list_alarms(alps) == []
        alps.now += 1
        (alarm,) = await run_check(alps)
        assert alarm.startswith("No one is on watch in Alps since 2026-") and "alarm 1" in alarm
        alps.now += HOUR
        assert await run_check(alps) == [] and await list_alarms(alps) == [("watch", "open")]
        # A dispatcher takes the watch, which the alarm shows, and ends the watch again.
        await run_action(alps, shifts.take_watch, 3, HOUR)
        assert await run_check(alps) == []
        assert ("heard", "a dispatcher is on watch again") in [
            tuple(row) for row in await alps.rows("SELECT event, detail FROM sos_event")
        ]
        await run_action(alps, shifts.end_watch, 3, "")
        assert len(await run_check(alps)) == 1
        alps.now += ALARM_AFTER_S
        assert len(await run_check(alps)) == 1 and len(await list_alarms(alps)) == 2
        # At night no watch is required.
        await run_action(alps, shifts.take_watch, 3, HOUR)
        alps.now = NOON + 11 * HOUR
        for _ in range(40):
            alps.now += 600
            if alps.now < NOON + 18 * HOUR:
                assert await run_check(alps) == []
        assert len(await list_alarms(alps)) == 2
        alps.now = NOON + 18 * HOUR
        assert len(await run_check(alps)) == 1


@pytest.mark.parametrize(
    "gone",
    [
        partial(directory.set_role, workspace=1, member=2, role="observer"),
        partial(directory.set_disabled, table="member", id_=2, when=NOON),
        partial(directory.remove_member, workspace=1, member=2),
    ],
    ids=["observer", "disabled", "left"],
)
async def test_user_without_answer_permission_is_not_on_watch(store: Store, gone: Any) -> None:
    async with field_of(store) as alps:
        await require_watch(alps)
        alps.now = NOON
        await run_action(alps, shifts.set_hours, Hours(0, 0))
        await run_action(alps, shifts.take_watch, 2, 8 * HOUR)
        await run_action(alps, shifts.take_watch, 3, 8 * HOUR)
        assert await run_check(alps) == []
        await store.commit(lambda db: gone(db, now=alps.now))
        assert await on_watch(alps) == [("Cleo", None, "")]
        await run_action(alps, shifts.end_watch, 3, "")
        (warning,) = await run_check(alps)
        assert warning.startswith("no one is on watch in Alps")
        standing = await store.read(lambda db: shifts.describe_watch(db, 1, alps.now))
        assert [each["ended"] for each in standing["before"]] == [NOON, NOON]


async def test_missing_watch_raises_the_alarm_after_a_hub_outage(store: Store) -> None:
    async with field_of(store) as alps:
        await require_watch(alps)
        await run_action(alps, shifts.set_hours, Hours(0, 0))
        assert len(await run_check(alps)) == 1
        alps.now = START + 86_400
        assert len(await run_check(alps)) == 1
        assert await list_alarms(alps) == [("watch", "open")]


def test_watch_is_managed_over_api_and_command_line(tmp_path: Path, database: str) -> None:
    settle_in(database)
    administer(database, "contact", "watch", "hours", "always")
    with hub(tmp_path, {"database": database}) as running:
        _, headers, _ = sign_in(running, "olga@example.org")
        mine = {"Cookie": headers["Set-Cookie"].partition(";")[0], "Origin": running.address}

        def said(method: str, path: str, body: Any = None) -> tuple[int, Any]:
            status, _, text = call(running, method, path, body, **mine)
            return status, json.loads(text)

        running.expect("no one is on watch in Alps")
        status, answer = said("GET", "/api/watch")
        assert status == 200 and answer["onWatch"] == [] and answer["unattendedSince"]
        status, answer = said("POST", "/api/watch/take", {"seconds": 28_800})
        assert status == 200 and answer["unattendedSince"] is None
        assert answer["onWatch"][0]["user"]["name"] == "Olga"
        status, answer = said("POST", "/api/watch/hand-over", {"to": "1", "note": "x"})
        assert status == 409 and "cannot answer an SOS here" in answer["detail"]
        assert said("POST", "/api/watch/hand-over", {"to": "all"})[0] == 422
        assert said("POST", "/api/watch/take", {"seconds": 0})[0] == 422
        assert said("POST", "/api/watch/end", {"note": "n" * 2001})[0] == 422
        shown = administer(database, "contact", "watch", "show")
        assert shown["hours"] == "always" and shown["onWatch"][0]["user"]["name"] == "Olga"
        assert (
            administer(database, "contact", "watch", "end", "Olga", "--note", "quiet")["onWatch"]
            == []
        )
        assert administer(database, "contact", "watch", "hours", "none") == {"hours": "none"}
