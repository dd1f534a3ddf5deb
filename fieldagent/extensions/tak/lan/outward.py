"""Builds the events that phones on the kit's network see. Pure functions.

| at the kit                   | on the phones                       | when                       |
|------------------------------|-------------------------------------|----------------------------|
| last position of a kit       | its user's unit                     | every 30 s                 |
| a received message           | GeoChat to all, from its sender     | once                       |
| a received waypoint          | a marker                            | once                       |
| an unanswered SOS            | 911 alert of its sender             | every 10 s; its end 3 times|
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak import map_events as tak_map
from fieldagent.extensions.tak.cot import NOWHERE, CotEvent, CotPoint
from fieldagent.extensions.tak.events import GeoChat, PlacedMarker, TakUnit
from fieldagent.extensions.tak.map_events import PREFIX, SentPosition, ShowingProgram
from fieldagent.package.package import Location
from fieldagent.package.tracks import PlacedPoint
from fieldagent.system.lazy_named_tuple import NamedTuple

PORT = 4242
"""TCP port on which ATAK receives messages for one phone."""
PEOPLE_MAX = 200
"""Largest number of units that the kit shows to phones."""


class LanUser(NamedTuple):
    """A unit on the map. The values are None if the position is unknown."""

    unit: TakUnit
    name: str
    latitude: float | None = None
    longitude: float | None = None
    at: float | None = None
    """Unix time of the position."""
    altitude: float | None = None
    speed: float | None = None
    course: float | None = None


def make_own_unit(name: str) -> TakUnit:
    """Return the kit's own unit on the map of TAK phones."""
    return TakUnit(f"{PREFIX}KIT-{_clean_uid_part(name)}", name)


def _clean_uid_part(text: str) -> str:
    """Return the text in a form that is valid in a uid and in the name of an XML attribute."""
    return re.sub(r"[^A-Za-z0-9-]", "_", text)


def make_unit(kind: str, unit_number: str, name: str) -> TakUnit:
    """Return the unit of a user or of a station on the air. All kits of a team use the same
    unit.
    """
    return TakUnit(
        f"{PREFIX}{kind[:1] or 'U'}-{_clean_uid_part(unit_number)}", name or f"{kind} {unit_number}"
    )


def find_user(uid: str) -> int | None:
    """Return the user number in a unit's uid, or None if the unit is not a user's."""
    number = uid.removeprefix(f"{PREFIX}U-")
    fits = uid.startswith(f"{PREFIX}U-") and number.isascii() and number.isdecimal()
    return int(number) if fits and len(number) < 19 else None


def list_users(
    own_unit: TakUnit, mine: Iterable[PlacedPoint], others: Iterable[PlacedPoint]
) -> list[LanUser]:
    """Return this kit and the other units with known positions, at most PEOPLE_MAX. Each has its
    newest position.
    """
    newest = {own_unit.uid: LanUser(own_unit, own_unit.callsign)}
    for unit, placed in [*((own_unit, each) for each in mine), *_add_units(others)]:
        if not isinstance(placed.place, Location):
            continue
        at = placed.moment.timestamp()
        earlier = newest.get(unit.uid)
        if earlier is None or earlier.at is None or earlier.at < at:
            place = placed.place
            newest[unit.uid] = LanUser(
                *(unit, unit.callsign, place.latitude, place.longitude, at, place.altitude),
                *(place.speed_over_ground, place.course_over_ground),
            )
    return [*newest.values()][:PEOPLE_MAX]


def _add_units(others: Iterable[PlacedPoint]) -> list[tuple[TakUnit, PlacedPoint]]:
    return [
        (make_unit(each.sender.type, each.sender.id, each.sender.name), each) for each in others
    ]


def make_position_events(
    user: LanUser, address: str, previous: SentPosition | None, now: float
) -> list[CotEvent]:
    """Return the events that show a user's position. `address` is the address of the kit, which
    receives the messages for all shown units.
    """
    shown_by = ShowingProgram("kit", "shown by the kit", f"{address}:{PORT}:tcp")
    return tak_map.make_position_events(user.unit, user, shown_by, previous, now, is_shared=True)


def make_event(body: str, now: float) -> CotEvent | None:
    """Return the event for a received item, or None if the item has no event. `body` is the JSON
    that a hook receives.
    """
    document = json.loads(body)
    (payload,) = document["payloads"]
    (event,) = payload["events"]
    identity, date = payload["identity"], tak_map.make_date(now)
    unit = make_unit(identity["type"], identity["id"], identity["name"])
    if event["type"] == "Message":
        text = tak_map.shorten_text(str(event["content"]), "kit")
        return tak.make_chat(GeoChat(unit, tak.ALL_UNITS, document["requestId"], text), date)
    if event["type"] == "Waypoint":
        point = CotPoint(float(event["latitude"]), float(event["longitude"]))
        placed = PlacedMarker(str(event["name"]), str(event.get("notes") or ""), point, date, ())
        return tak.make_marker(f"{PREFIX}W-{document['requestId']}", unit, placed, date)
    return None


class LanAlert(NamedTuple):
    """An unanswered SOS of a unit that may be on the map."""

    unit: TakUnit
    place: CotPoint | None = None
    """Position in the SOS itself."""


def list_alerts(own_unit: TakUnit, status: dict[str, Any]) -> list[LanAlert]:
    """Return the active alerts. `status` is the content of the response to `GET /api/sos`."""
    own_incident = status["incident"]
    ringing = []
    if own_incident is not None and own_incident["state"] == "open":
        ringing.append(LanAlert(own_unit, _find_place(own_incident["items"])))
    for each in status["heard"]:
        if each["state"] == "open":
            # Station 0 is this kit and all its handhelds. The incident's number tells them apart.
            station = str(each["station"] or f"0-{each['number']}")
            name = str(each.get("name") or f"kit {station}")
            ringing.append(LanAlert(TakUnit(f"{PREFIX}S-{station}", name)))
    return ringing


def _find_place(items: Sequence[dict[str, Any]]) -> CotPoint | None:
    """Return the newest position in the items of an SOS."""
    for each in reversed(items):
        if (place := each.get("position")) is not None:
            return CotPoint(float(place["latitude"]), float(place["longitude"]))
    return None


def make_alert(alert: LanAlert, users: Sequence[LanUser], now: float, *, is_over: bool) -> CotEvent:
    """Return the 911 alert of an SOS at its last known position, or the cancel of this alert if
    `is_over` is True.
    """
    point = NOWHERE
    for user in users:
        is_theirs = alert.unit.uid == user.unit.uid or alert.unit.callsign == user.name
        if is_theirs and user.latitude is not None and user.longitude is not None:
            point = CotPoint(user.latitude, user.longitude)
    # The position in the SOS is newer than the last position that the kit sent before the SOS.
    point = alert.place or point
    return tak.make_alert(alert.unit, point, tak_map.make_date(now), cancels=is_over)
