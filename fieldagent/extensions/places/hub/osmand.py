"""OsmAnd's live tracking, which Traccar Client and many trackers also use.

Each request contains one position, as a query or a form (Traccar's documentation, "OsmAnd
protocol"). Traccar Client since version 9 sends JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from fieldagent.extensions.places.hub.tracker_kind import (
    KNOTS,
    TrackerKind,
    convert_speed,
    join_alarms,
    make_place,
    make_report,
    parse_accuracy,
    parse_document,
    parse_ident,
    parse_number,
    parse_optional_number,
    parse_time,
)
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.field.trackers import TrackerReport

_HOW = "send id, lat, lon and timestamp, such as ?id=123456&lat=45.91&lon=7.61&timestamp=1790000000"


def parse_report(request: Request) -> TrackerReport:
    """Return the report in a query, a form or a JSON object. Raises Problem 400 if the report is
    invalid.
    """
    if request.body.lstrip()[:1] == b"{":
        return _read_document(parse_document(request.body))
    pairs = [*request.query, *parse_qsl(request.body.decode("utf-8", "replace"))]
    if not pairs:
        raise Problem(400, _HOW)
    alarm = join_alarms(*(value for name, value in pairs if name == "alarm"))
    return _read_pairs(dict(pairs), alarm)


def _read_pairs(pairs: Mapping[str, str], alarm: str) -> TrackerReport:
    latitude, longitude = pairs.get("lat"), pairs.get("lon")
    if "location" in pairs:
        latitude, _, longitude = pairs["location"].partition(",")
    if pairs.get("valid") in ("0", "false"):
        latitude = longitude = None
    return make_report(
        parse_ident(pairs.get("id", pairs.get("deviceid")), "id"),
        alarm,
        lambda: parse_time(pairs.get("timestamp"), "timestamp"),
        lambda: make_place(
            {
                "latitude": parse_number(latitude, "lat"),
                "longitude": parse_number(longitude, "lon"),
                "altitude": parse_optional_number(pairs.get("altitude")),
                "speedOverGround": convert_speed(parse_optional_number(pairs.get("speed")), KNOTS),
                "courseOverGround": parse_optional_number(
                    pairs.get("bearing", pairs.get("heading"))
                ),
            }
        ),
        parse_accuracy(pairs.get("accuracy")),
    )


def _read_document(document: Any) -> TrackerReport:
    """Return the report in the JSON of a location library. In this JSON, an unknown value is null
    or negative.
    """
    location = _get_object(document, "location")
    coordinates = _get_object(location, "coords")
    alarm = join_alarms(
        *(part.get("alarm") for part in (document, location, _get_object(location, "extras")))
    )
    if not coordinates and not alarm:
        raise Problem(400, f"the body must hold device_id and location.coords; or {_HOW}")
    return make_report(
        parse_ident(document.get("device_id"), "device_id"),
        alarm,
        lambda: parse_time(location.get("timestamp"), "location.timestamp"),
        lambda: make_place(
            {
                "latitude": parse_number(coordinates.get("latitude"), "latitude"),
                "longitude": parse_number(coordinates.get("longitude"), "longitude"),
                "altitude": parse_optional_number(coordinates.get("altitude")),
                "speedOverGround": _parse_known(coordinates.get("speed")),
                "courseOverGround": _parse_known(coordinates.get("heading")),
            }
        ),
        parse_accuracy(coordinates.get("accuracy")),
    )


def _parse_known(value: Any) -> float | None:
    """Return a speed or course, or None if the value is negative, which means unknown."""
    number = parse_optional_number(value)
    return None if number is None or number < 0 else number


def _get_object(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the member `name`, or an empty object if the member is missing or is not an object."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}


KIND = TrackerKind("osmand", "OsmAnd and Traccar Client", ("GET", "POST"), parse_report)
