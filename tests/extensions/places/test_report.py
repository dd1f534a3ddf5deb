"""A kit's week as a table, a track and a page to print, read by third-party parsers."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastkml
import gpxpy
import pytest

from fieldagent.extensions.places.hub import documents, kit_week
from fieldagent.extensions.places.hub.kit_week import KitWeek
from fieldagent.extensions.places.hub.week import (
    Week,
    WrongWeek,
    compute_longest_pause,
    find_week,
    parse_week,
)
from fieldagent.hub.api import sos_desk
from fieldagent.hub.contract import Bearer
from fieldagent.hub.records import sos, usage
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import Location, Message
from fieldagent.system.price import read_credit_price
from fieldagent.wire.envelope import Entry
from tests.hub.field import START, Field, collect, field_of
from tests.hub.test_console import call, settle_in, sign_in
from tests.processes import MODULE, administer, hub

TIME = int(START)
WEEK = find_week(START)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("moment", "name", "begins"),
    [
        ("2026-11-22T23:59:59", "2026-W47", "2026-11-16"),
        ("2026-11-23T00:00:00", "2026-W48", "2026-11-23"),
        ("2027-01-01T12:00:00", "2026-W53", "2026-12-28"),
        ("2024-12-30T00:00:00", "2025-W01", "2024-12-30"),
    ],
)
def test_week_follows_iso_8601(moment: str, name: str, begins: str) -> None:
    week = find_week(at(moment))
    assert week == parse_week(name) == Week(name, at(begins), at(begins) + 7 * 86_400)
    assert week.days[0] == begins


@pytest.mark.parametrize(
    "text", ["2026-47", "2026-W54", "2025-W53", "0000-W01", "9999-W52", "last", ""]
)
def test_invalid_week_is_refused(text: str) -> None:
    with pytest.raises(WrongWeek, match="such as 2026-W47"):
        parse_week(text)


def test_gap_is_an_unusual_pause_of_the_track() -> None:
    assert compute_longest_pause([0, 60, 120, 180]) == compute_longest_pause([5]) == 900
    assert compute_longest_pause([0, 3600, 7200, 30_000]) == 3 * 3600


async def send_week(alps: Field) -> KitWeek:
    """Let kit 1 send its positions with a night between, and an SOS, and send it texts."""
    places = [(45.9 + step / 1000, TIME + step * 300) for step in (*range(6), *range(100, 104))]
    alps.now = START + 104 * 300
    entries = [
        Entry(number, Location(north, 7.6, altitude=2000.0 + number), when)
        for number, (north, when) in enumerate(places, 1)
    ]
    # They arrive in another order than they were made.
    await alps.sends(1, *reversed(entries))
    await alps.sends(1, Entry(20, Message("=help <me>"), TIME + 40_000, sos=True))
    await alps.sends(1, Entry(21, Location(45.95, 7.6), TIME - 8 * 86_400))
    await alps.sends(1, Entry(22, Message("all well"), TIME + 50), bearer=Bearer.SATELLITE)
    await alps.push(Message("come down"), target=1)
    await collect(alps.mailbox(1))
    await alps.push(Message("where are you"), target=1, over_satellite=True)
    incident = await alps.store.read(lambda db: sos.find_incident(db, 1, 1))
    assert incident is not None
    await alps.store.commit(
        lambda db: sos_desk.close_incident(db, incident, 2, "a <false> alarm", alps.now)
    )
    session = usage.count_session
    await session(alps.store, "300000000000001", "mo 1", 70, clock=lambda: alps.now)
    return await load_kit_week(alps)


async def load_kit_week(alps: Field, device: int = 1, week: Week = WEEK) -> KitWeek:
    price = read_credit_price("0.12 EUR")
    return await alps.store.read(
        lambda db: kit_week.read_kit_week(db, 1, device, week, lambda operator: price, alps.now)
    )


async def test_weekly_report_contains_track_items_incidents_and_costs(store: Store) -> None:
    async with field_of(store) as alps:
        week = await send_week(alps)
        assert [each.moment.timestamp() for each in week.track] == [
            TIME + step * 300 for step in (*range(6), *range(100, 104))
        ]
        ((begins, ends),) = week.find_gaps()
        assert (begins.timestamp(), ends.timestamp()) == (TIME + 1500, TIME + 30_000)
        assert week.count_sent() == {"location": 10, "SOS": 1, "message": 1}
        assert week.count_received()[("message", "stored", "ip")] >= 1
        assert week.count_received()[("message", "waiting", "")] == 1
        assert [(each["kind"], each["state"]) for each in week.incidents] == [("sos", "closed")]
        ((day),) = week.costs
        assert (day["mo"], day["money"], week.money) == (2, "0.24 EUR", "0.24 EUR")
        assert json.loads(json.dumps(kit_week.encode_week(week)))["week"] == WEEK.name
        # A late item belongs to the week of its time. Another kit's report does not contain it.
        before = await load_kit_week(alps, week=find_week(START - 8 * 86_400))
        assert len(before.track) == 1 and before.incidents == []
        assert (await load_kit_week(alps, 2)).track == []


@pytest.mark.parametrize(
    ("bound", "most", "is_whole"),
    [
        ("ITEMS_READ_MAX", 3, False),
        ("ITEMS_READ_MAX", 13, True),
        ("ITEMS_MAX", 11, False),
        ("ITEMS_MAX", 12, True),
    ],
)
async def test_truncated_week_is_marked_as_incomplete(
    store: Store, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, is_whole: bool
) -> None:
    """The hub has thirteen items since the start of the week, and twelve of them belong to the
    week.
    """
    async with field_of(store) as alps:
        await send_week(alps)
        monkeypatch.setattr(kit_week, bound, most)
        week = await load_kit_week(alps)
        assert (week.is_complete, len(week.sent)) == (is_whole, min(most, 12))


async def test_third_party_parsers_read_the_gpx_and_kml_track(store: Store) -> None:
    async with field_of(store) as alps:
        week = await send_week(alps)
    (track,) = gpxpy.parse(documents.FORMATS["gpx"].write(week).decode()).tracks
    assert [len(segment.points) for segment in track.segments] == [6, 4]
    first = track.segments[0].points[0]
    assert (first.latitude, first.longitude, first.elevation) == (45.9, 7.6, 2001)
    assert first.time is not None and first.time.timestamp() == TIME
    # The parser accepts no declaration in a string.
    _, _, text = documents.FORMATS["kml"].write(week).decode().partition("\n")
    kml = fastkml.KML.from_string(text)
    lines = [each.geometry for each in kml.features[0].features]  # type: ignore[union-attr]
    assert [(each.geom_type, len([*each.coords])) for each in lines] == [
        ("LineString", 6),
        ("LineString", 4),
        ("Point", 1),
    ]


async def test_csv_contains_a_row_for_each_item(store: Store) -> None:
    async with field_of(store) as alps:
        week = await send_week(alps)
    text = documents.FORMATS["csv"].write(week).decode("utf-8-sig")
    rows = [*csv.DictReader(io.StringIO(text))]
    by_what: dict[str, list[Any]] = {}
    for row in rows:
        by_what.setdefault(row["what"], []).append(row)
    assert {what: len(those) for what, those in by_what.items()} | {"to kit": 0} == {
        "position": 10,
        "from kit": 12,
        "to kit": 0,
        "incident": 1,
        "cost": 1,
    }
    assert {row["state"] for row in by_what["to kit"]} == {"stored", "waiting"}
    assert by_what["incident"][0]["text"] == "Ben: a <false> alarm"
    assert (by_what["cost"][0]["over"], by_what["cost"][0]["money"]) == ("satellite", "0.24 EUR")


async def test_empty_week_is_written_in_every_format(store: Store) -> None:
    async with field_of(store) as alps:
        week = await load_kit_week(alps)
        for kind in documents.FORMATS.values():
            assert kind.write(week)
        assert b"No position is known of this week." in documents.FORMATS["html"].write(week)


def test_weekly_report_is_available_by_command_and_api(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    document = administer(database, "report", "--kit", "kit-ada", "--week", "2026-W47")
    assert (document["week"], document["positions"], document["costs"]) == ("2026-W47", [], [])
    for week, code, words in (("2026-47", 2, "is not a week"), ("2026-W47", 0, "")):
        command = [*MODULE, "hub", "report", "--kit", "kit-ada", "--week", week]
        done = subprocess.run(
            [*command, "--format", "gpx", "--database", database], capture_output=True, text=True
        )
        assert (done.returncode, words in done.stderr) == (code, True)
    assert gpxpy.parse(done.stdout).tracks == []
    administer(database, "user", "role", "Olga", "administrator")
    with hub(tmp_path, {"database": database}) as there:
        _, headers, _ = sign_in(there, "olga@example.org")
        mine = {"Cookie": headers["Set-Cookie"].partition(";")[0], "Origin": there.address}
        path = "/api/devices/1/report"
        status, headers, text = call(there, "GET", f"{path}?week=2026-W47&format=html", **mine)
        assert status == 200 and "2026-W47</h1>" in str(text)
        assert "style-src 'unsafe-inline'" in headers["Content-Security-Policy"]
        assert call(there, "GET", f"{path}?week=2026-47", **mine)[0] == 400
        assert call(there, "GET", "/api/devices/99/report", **mine)[0] == 404
