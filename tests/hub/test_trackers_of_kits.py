"""Trackers that a kit hears on its radio, at the hub."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from fieldagent.hub.api import reading
from fieldagent.hub.field import trackers
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import Location, Waypoint
from fieldagent.wire.envelope import Entry
from tests.hub.field import START, Field, field_of
from tests.hub.test_read_api import hub_caller

CALL = "N0CALL-9"


def make_heard_position(sequence: int, north: float, at: float, *, sos: bool = False) -> Entry:
    when = datetime.fromtimestamp(at, UTC)
    point = Waypoint(north, 7.61, CALL, when, "by APRS, unproved call sign")
    return Entry(sequence, point, int(at), sos=sos, author=f"tracker:{CALL}")


async def list_devices_by_name(alps: Field) -> dict[str, dict[str, object]]:
    devices, _ = await alps.store.read(
        lambda db: reading.list_devices(db, hub_caller(), reading.END, 10, alps.now)
    )
    return {each["name"]: each for each in devices}


async def add_tracker(alps: Field) -> None:
    adding = partial(
        trackers.add_tracker, workspace=1, member=3, name=CALL, ident=CALL, now=alps.now
    )
    await alps.store.commit(adding)


async def test_tracker_position_heard_by_a_kit_does_not_move_the_kit(store: Store) -> None:
    async with field_of(store) as alps:
        await add_tracker(alps)
        await alps.sends(1, Entry(1, Location(45.0, 7.0), int(START)))
        await alps.sends(1, make_heard_position(2, 46.5, START - 60))
        await alps.sends(
            1, make_heard_position(2, 46.5, START - 60), make_heard_position(3, 46.4, START - 900)
        )
        seen = await list_devices_by_name(alps)
        tracker, kit = seen[CALL], seen["kit 1"]
        assert tracker["position"] == {"latitude": 46.5, "longitude": 7.61, "at": START - 60}
        assert tracker["over"] == "APRS"
        assert kit["position"] == {"latitude": 45.0, "longitude": 7.0, "at": START}
        assert await alps.rows("SELECT kind, source_device FROM item ORDER BY id") == [
            ("location", 1),
            ("location", 4),
        ]


async def test_heard_position_of_unknown_tracker_or_sos_is_a_waypoint(store: Store) -> None:
    """An SOS remains an SOS."""
    async with field_of(store) as alps:
        await alps.sends(1, make_heard_position(1, 46.5, START))
        await add_tracker(alps)
        await alps.sends(1, make_heard_position(2, 46.5, START, sos=True))
        rows = await alps.rows("SELECT kind, source_device, sos FROM item ORDER BY id")
        assert rows == [("waypoint", 1, 0), ("waypoint", 1, 1)]
        assert await alps.rows("SELECT count(*) FROM sos WHERE state = 'open'") == [(1,)]
        assert (await list_devices_by_name(alps))["kit 1"]["position"] is None


async def test_position_of_another_author_does_not_move_the_kit(store: Store) -> None:
    async with field_of(store) as alps:
        await alps.sends(1, Entry(1, Location(46.5, 7.61), int(START), author=2))
        assert await alps.rows("SELECT kind, sender FROM item") == [("location", 2)]
        assert (await list_devices_by_name(alps))["kit 1"]["position"] is None
