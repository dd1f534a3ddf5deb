"""Positions in the journal: the kit's own track and waypoints, and the positions of others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.losses import report_unreadable
from fieldagent.package.package import Location, Waypoint, convert_to_date
from fieldagent.package.payload import Identity
from fieldagent.package.reading import read_stored_package, read_timestamp
from fieldagent.package.tracks import PlacedPoint

OWN_IDENTITY = Identity("", "this kit", "Device")
SEARCHED_ROWS_MAX = 20_000
"""Maximum number of Packages, and of payloads, that a search reads, beginning with the newest."""
_SELECT_OWN = (
    "SELECT sequence, body, accepted FROM package WHERE sequence > (SELECT max(sequence) FROM"
    " package) - {looked_at} AND sequence NOT IN (SELECT sequence FROM carried)"
    " AND (instr(body, '\"location\":{{') OR instr(body, '\"waypoint\":{{'))"
    " ORDER BY sequence DESC LIMIT {limit}"
)
_SELECT_OTHERS = (
    "SELECT request_id, body FROM inbound WHERE number > (SELECT max(number) FROM inbound)"
    " - {looked_at} AND instr(body, '\"latitude\":') ORDER BY number DESC LIMIT {limit}"
)


async def list_newest(journal: Journal, limit: int) -> tuple[list[PlacedPoint], list[PlacedPoint]]:
    """Return two lists: our own places and the places of others. Each list begins with the newest
    place, and has at most `limit` places. A row that cannot be read is logged and left out.
    """
    own = await journal.read_aside(_SELECT_OWN.format(limit=limit, looked_at=SEARCHED_ROWS_MAX))
    others = await journal.read_aside(
        _SELECT_OTHERS.format(limit=limit, looked_at=SEARCHED_ROWS_MAX)
    )
    return list(_list_own(journal, own)), list(_list_received(others))


def find_last_own(journal: Journal) -> Location | None:
    """Return the last position that this kit posted, including its time, or None if there is
    none.
    """
    sql = _SELECT_OWN.format(limit=SEARCHED_ROWS_MAX, looked_at=SEARCHED_ROWS_MAX)
    for each in _list_own(journal, journal.read(sql)):
        if isinstance(each.place, Location):
            return replace(each.place, timestamp=each.moment)
    return None


def _list_own(journal: Journal, rows: Sequence[Sequence[Any]]) -> Iterator[PlacedPoint]:
    for sequence, body, accepted in rows:
        try:
            package = read_stored_package(body)
        except ValueError:
            report_unreadable("Package", str(sequence))
            continue
        location = package.item
        if isinstance(location, Location | Waypoint):
            moment = location.timestamp or convert_to_date(int(journal.clock.date(accepted)))
            yield PlacedPoint(str(sequence), OWN_IDENTITY, None, moment, location, package.sos)


def _list_received(rows: Sequence[Sequence[Any]]) -> Iterator[PlacedPoint]:
    for request_id, body in rows:
        try:
            (payload,) = json.loads(body)["payloads"]
            (event,) = payload["events"]
            if "latitude" in event:
                yield _read_placed(request_id, payload["identity"], event)
        except (KeyError, TypeError, ValueError):
            report_unreadable("payload", request_id)


def _read_placed(request_id: str, identity: dict[str, str], event: dict[str, Any]) -> PlacedPoint:
    """Return the place of a payload. Raises KeyError, TypeError or ValueError if the row is
    damaged.
    """
    position, moment = _read_place(event), read_timestamp(event["timestamp"])
    identity_of_sender = Identity(
        identity["id"], identity["name"] or identity["id"], identity["type"]
    )
    return PlacedPoint(
        request_id, identity_of_sender, None, moment, position, bool(event.get("sos"))
    )


def _read_place(event: dict[str, Any]) -> Location | Waypoint:
    latitude, longitude = float(event["latitude"]), float(event["longitude"])
    if event["type"] == "Waypoint":
        return Waypoint(latitude, longitude, event["name"], None, event.get("notes"))
    return Location(latitude, longitude, None, event.get("altitude"))
