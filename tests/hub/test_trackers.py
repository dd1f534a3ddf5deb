"""Trackers at the hub: their place on the map, the receivers of an alarm, and the cost."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api import reading, sos_desk
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.field import check_in, trackers
from fieldagent.hub.field.check_in import Rule
from fieldagent.hub.field.trackers import TrackerReport
from fieldagent.hub.records import sos
from fieldagent.hub.records.sos import SosState
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import Location
from tests.hub.field import START, Field, collect, field_of, said
from tests.hub.test_read_api import hub_caller

DOG = "867567"
ROUND = 60


def report(at: float, alarm: str = "", *, north: float = 45.91, ident: str = DOG) -> TrackerReport:
    when = datetime.fromtimestamp(at, UTC)
    return TrackerReport(ident, when, {"latitude": north, "longitude": 7.61}, alarm)


async def tracked(alps: Field) -> int:
    """Add a tracker for Cleo, who also has kit 3: device 4."""
    add = partial(trackers.add_tracker, workspace=1, member=3, name="Dog", ident=DOG, now=alps.now)
    device: int = await alps.store.commit(add)
    return device


async def says(alps: Field, what: TrackerReport) -> ItemResult:
    return await alps.store.commit(
        lambda db: trackers.process_tracker_report(db, 1, what, alps.now)
    )


async def list_incidents(alps: Field) -> list[Any]:
    return [
        *await alps.store.read(
            lambda db: sos.list_sos(db, workspace=1, state=None, before=99, limit=9)
        )
    ]


async def close_newest(alps: Field) -> None:
    """Let Ben close the newest incident."""
    incident = (await list_incidents(alps))[0]
    await alps.store.commit(
        partial(sos_desk.close_incident, incident=incident, member=2, reason="found", now=alps.now)
    )


async def words_for_ada(alps: Field) -> list[str]:
    return [text for _, text in said(await collect(alps.mailbox(1)))]


async def list_items(alps: Field) -> list[Any]:
    rows = await alps.rows("SELECT kind, sos, source_device, incident FROM item ORDER BY id")
    return [tuple(row) for row in rows]


async def test_tracker_positions_update_the_map_and_kits_get_one_a_minute(store: Store) -> None:
    async with field_of(store) as alps:
        device = await tracked(alps)
        for seconds in range(0, 121, 10):
            alps.now = START + seconds
            here = report(alps.now, north=45.0 + seconds / 1000)
            assert await says(alps, here) is ItemResult.TAKEN
        assert await list_items(alps) == [("location", 0, device, None)] * 3
        devices, _ = await store.read(
            lambda db: reading.list_devices(db, hub_caller(), reading.END, 10, alps.now)
        )
        dog = next(each for each in devices if each["id"] == device)
        assert dog["position"]["latitude"] == 45.12 and (dog["lastContact"], dog["over"]) == (
            alps.now,
            "tracker",
        )
        # A kit that was away gets only the newest, and the tracker's own carrier gets none.
        (one,) = await collect(alps.mailbox(1))
        places = [entry.content for entry in one.entries if isinstance(entry.content, Location)]
        assert [place.latitude for place in places] == [45.12]
        assert await collect(alps.mailbox(3)) == []
        assert await alps.rows("SELECT count(*) FROM delivery WHERE device = ?", device) == [(0,)]
        assert await alps.rows("SELECT count(*) FROM receipt") == [(0,)]


async def test_repeated_or_late_tracker_report_is_ignored(store: Store) -> None:
    async with field_of(store) as alps:
        await tracked(alps)
        alps.now += 1000
        assert await says(alps, report(START + 900, north=46.0)) is ItemResult.TAKEN
        assert await says(alps, report(START + 900, north=46.0)) is ItemResult.REPEATED
        assert await says(alps, report(START + 100, north=45.0)) is ItemResult.REPEATED
        # A tracker whose clock is ahead is at that position now.
        assert await says(alps, report(START + 9e7, north=47.0)) is ItemResult.TAKEN
        assert await alps.rows("SELECT latitude, position_at FROM contact WHERE device = 4") == [
            (47.0, START + 1000)
        ]
        assert await says(alps, report(START, ident="of nobody")) is ItemResult.REFUSED
        assert len(await list_items(alps)) == 2


async def test_repeated_tracker_alarm_is_one_sos_until_closed(store: Store) -> None:
    async with field_of(store) as alps:
        device = await tracked(alps)
        await says(alps, report(START))
        for seconds in (10, 20, 80):
            alps.now = START + seconds
            await says(alps, report(alps.now, "sos"))
        (incident,) = await list_incidents(alps)
        assert (incident.device, incident.state, incident.kind) == (device, "open", "sos")
        assert (await list_items(alps))[1:] == [
            ("message", 1, device, incident.id),
            ("location", 0, device, incident.id),
        ]
        # A dispatcher closes the SOS. A stuck button does not ring again, and a new press does.
        await close_newest(alps)
        alps.now += 100
        await says(alps, report(alps.now, "sos"))
        assert [each.state for each in await list_incidents(alps)] == [SosState.CLOSED]
        await says(alps, report(alps.now + 1))
        alps.now += 10
        await says(alps, report(alps.now, "fallDown"))
        assert [each.state for each in await list_incidents(alps)] == [
            SosState.OPEN,
            SosState.CLOSED,
        ]


async def test_tracker_alarm_without_a_new_position_rings(store: Store) -> None:
    async with field_of(store) as alps:
        await tracked(alps)
        await says(alps, report(START))
        # At the same second as the previous position: a button without a new fix.
        assert await says(alps, report(START, "sos")) is ItemResult.TAKEN
        await close_newest(alps)
        await says(alps, TrackerReport(DOG))
        assert await says(alps, TrackerReport(DOG, alarm="sos")) is ItemResult.TAKEN
        (raised, _) = await list_incidents(alps)
        one, two = await words_for_ada(alps)
        assert "at 45.91000 7.61000" in one and "without a position" in two
        assert "No answer can be sent to a tracker" in two
        assert raised.state == "open"


DISTRESS = [
    *("sos", "SOS", "Sos", "ＳＯＳ", "fallDown", "FALLDOWN", "fall_down", "accident", "SOS button"),
    *("lowBattery,sos", "sos,lowBattery", "lowBattery, SOS", "tow;sos", "tow,,fallDown", "sos1"),
    # Longer than the stored text of alarms.
    "lowBattery,powerCut,hardBraking,tampering,geofenceExit,sos",
    f"{'x' * 40},sos",
]


async def test_distress_alarm_rings_beside_any_other_alarm(store: Store) -> None:
    async with field_of(store) as alps:
        await tracked(alps)
        for count, alarm in enumerate(DISTRESS, 1):
            for each in ("lowBattery", alarm, alarm):
                alps.now += 10
                await says(alps, report(alps.now, each))
            raised = await list_incidents(alps)
            assert (len(raised), raised[0].state, raised[0].kind) == (min(count, 9), "open", "sos")
            await close_newest(alps)
            # A stuck button with another alarm beside it does not ring again.
            alps.now += 10
            await says(alps, report(alps.now, f"{alarm},tow"))
            assert (await list_incidents(alps))[0].state == SosState.CLOSED, alarm


async def test_second_kind_of_distress_alarm_rings_again(store: Store) -> None:
    async with field_of(store) as alps:
        await tracked(alps)
        await says(alps, report(START, "sos"))
        await close_newest(alps)
        await says(alps, report(START + 10, "sos,fallDown"))
        assert [each.state for each in await list_incidents(alps)] == [
            SosState.OPEN,
            SosState.CLOSED,
        ]


async def test_tracker_sos_contains_the_unreadable_fields(store: Store) -> None:
    async with field_of(store) as alps:
        await tracked(alps)
        await says(alps, TrackerReport(DOG, alarm="sos", unread="lat must be a number,\n not 'x'"))
        (words,) = await words_for_ada(alps)
        assert "Not read: lat must be a number,? not 'x'." in words


async def test_tracker_items_use_no_satellite_credits(store: Store) -> None:
    """Kit 2 accepts items over satellite, and an SOS is worth its cost elsewhere."""
    async with field_of(store) as alps:
        await tracked(alps)
        await store.commit(
            lambda db: db.execute("UPDATE membership SET over_satellite = 1 WHERE member = 2")
        )
        await says(alps, report(START, "sos"))
        await says(alps, report(START + 1, "lowBattery"))
        alps.now += 3600
        await alps.satellite()
        assert alps.sky.calls == []
        got = await collect(alps.mailbox(2))
        assert said(got)[1] == (3, "Dog: lowBattery") and len(said(got)) == 2
        assert [entry.sos for each in got for entry in each.entries].count(True) == 1


async def test_other_tracker_alarm_is_sent_once(store: Store) -> None:
    async with field_of(store) as alps:
        await tracked(alps)
        for seconds, alarm in enumerate(["lowBattery", "lowBattery", "", "lowBattery", "tow\n"]):
            await says(alps, report(START + seconds, alarm))
        assert await words_for_ada(alps) == ["Dog: lowBattery", "Dog: lowBattery", "Dog: tow?"]
        assert await list_incidents(alps) == []


async def test_silent_tracker_becomes_overdue(store: Store) -> None:
    async with field_of(store) as alps:
        device = await tracked(alps)
        rule = Rule(interval=3600.0)
        await store.commit(lambda db: check_in.begin_rule(db, device, rule, now=alps.now))
        alps.now += 3000
        await says(alps, report(alps.now))
        alps.now += 3599
        assert await store.commit(lambda db: check_in.warn_of_late(db, alps.now)) == []
        alps.now += 1
        (warning,) = await store.commit(lambda db: check_in.warn_of_late(db, alps.now))
        assert warning.startswith("Nothing heard from Dog since")


async def test_duplicate_tracker_identifier_is_rejected(store: Store) -> None:
    async with field_of(store) as alps:
        await tracked(alps)
        with pytest.raises(Refused, match="is 'Dog' already"):
            await tracked(alps)
