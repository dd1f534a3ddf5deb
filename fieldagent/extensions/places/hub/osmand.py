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
    accuracy_of,
    alarm_of,
    document_of,
    faster,
    ident_of,
    measure_of,
    number_of,
    place_of,
    report_of,
    time_of,
)
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.field.trackers import TrackerReport

_HOW = "send id, lat, lon and timestamp, such as ?id=123456&lat=45.91&lon=7.61&timestamp=1790000000"


def read(request: Request) -> TrackerReport:
    """Return the report in a query, a form or a JSON object. Raises Problem 400."""
    if request.body.lstrip()[:1] == b"{":
        return _read_document(document_of(request.body))
    pairs = [*request.query, *parse_qsl(request.body.decode("utf-8", "replace"))]
    if not pairs:
        raise Problem(400, _HOW)
    alarm = alarm_of(*(value for name, value in pairs if name == "alarm"))
    return _read_pairs(dict(pairs), alarm)


def _read_pairs(pairs: Mapping[str, str], alarm: str) -> TrackerReport:
    latitude, longitude = pairs.get("lat"), pairs.get("lon")
    if "location" in pairs:
        latitude, _, longitude = pairs["location"].partition(",")
    if pairs.get("valid") in ("0", "false"):
        latitude = longitude = None
    return report_of(
        ident_of(pairs.get("id", pairs.get("deviceid")), "id"),
        alarm,
        lambda: time_of(pairs.get("timestamp"), "timestamp"),
        lambda: place_of(
            {
                "latitude": number_of(latitude, "lat"),
                "longitude": number_of(longitude, "lon"),
                "altitude": measure_of(pairs.get("altitude")),
                "speedOverGround": faster(measure_of(pairs.get("speed")), KNOTS),
                "courseOverGround": measure_of(pairs.get("bearing", pairs.get("heading"))),
            }
        ),
        accuracy_of(pairs.get("accuracy")),
    )


def _read_document(document: Any) -> TrackerReport:
    """Return the report in the JSON of a location library. In this JSON, an unknown value is null
    or negative.
    """
    location = _object(document, "location")
    coordinates = _object(location, "coords")
    alarm = alarm_of(
        *(part.get("alarm") for part in (document, location, _object(location, "extras")))
    )
    if not coordinates and not alarm:
        raise Problem(400, f"the body must hold device_id and location.coords; or {_HOW}")
    return report_of(
        ident_of(document.get("device_id"), "device_id"),
        alarm,
        lambda: time_of(location.get("timestamp"), "location.timestamp"),
        lambda: place_of(
            {
                "latitude": number_of(coordinates.get("latitude"), "latitude"),
                "longitude": number_of(coordinates.get("longitude"), "longitude"),
                "altitude": measure_of(coordinates.get("altitude")),
                "speedOverGround": _known(coordinates.get("speed")),
                "courseOverGround": _known(coordinates.get("heading")),
            }
        ),
        accuracy_of(coordinates.get("accuracy")),
    )


def _known(value: Any) -> float | None:
    """Return a speed or course, or None if the value is negative, which means unknown."""
    number = measure_of(value)
    return None if number is None or number < 0 else number


def _object(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the member `name`, or an empty object if the member is missing or is not an object."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}


KIND = TrackerKind("osmand", "OsmAnd and Traccar Client", ("GET", "POST"), read)
