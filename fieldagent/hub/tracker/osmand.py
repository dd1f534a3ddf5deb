"""OsmAnd's live tracking, which Traccar Client and many trackers speak too: one position each, by a
query or a form (Traccar's documentation, "OsmAnd protocol"), or by JSON, as Traccar Client sends it
since version 9."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.tracker.contract import (
    KNOTS,
    TrackerKind,
    TrackerReport,
    accuracy_of,
    document_of,
    faster,
    ident_of,
    number_of,
    place_of,
    time_of,
)

_HOW = "send id, lat, lon and timestamp, such as ?id=123456&lat=45.91&lon=7.61&timestamp=1790000000"


def read(request: Request) -> TrackerReport:
    """Return the report of a query, a form or a JSON object. Raises Problem 400."""
    pairs = dict(request.query)
    if request.body.lstrip()[:1] == b"{":
        return _from_json(document_of(request.body))
    pairs |= parse_qsl(request.body.decode("utf-8", "replace"))
    if not pairs:
        raise Problem(400, _HOW)
    return _from_pairs(pairs)


def _from_pairs(pairs: Mapping[str, str]) -> TrackerReport:
    latitude, longitude = pairs.get("lat"), pairs.get("lon")
    if "location" in pairs:
        latitude, _, longitude = pairs["location"].partition(",")
    if pairs.get("valid") in ("0", "false"):
        latitude = longitude = None
    return TrackerReport(
        ident_of(pairs.get("id", pairs.get("deviceid")), "id"),
        time_of(pairs.get("timestamp"), "timestamp"),
        place_of(
            {
                "latitude": number_of(latitude, "lat"),
                "longitude": number_of(longitude, "lon"),
                "altitude": number_of(pairs.get("altitude"), "altitude"),
                "speedOverGround": faster(number_of(pairs.get("speed"), "speed"), KNOTS),
                "courseOverGround": number_of(
                    pairs.get("bearing", pairs.get("heading")), "bearing"
                ),
            }
        ),
        pairs.get("alarm", ""),
        accuracy_of(pairs.get("accuracy")),
    )


def _from_json(document: Any) -> TrackerReport:
    """Read the report of a receiver's library: what it does not know is null, or less than 0."""
    location = document.get("location") if isinstance(document, dict) else None
    coordinates = location.get("coords") if isinstance(location, dict) else None
    if not isinstance(coordinates, dict) or not isinstance(location, dict):
        raise Problem(400, f"the body must hold device_id and location.coords; or {_HOW}")
    known = {
        name: value
        for name in ("latitude", "longitude", "altitude", "speed", "heading")
        if (value := number_of(coordinates.get(name), name)) is not None
        and (name not in ("speed", "heading") or value >= 0)
    }
    extras = location.get("extras")
    alarm = extras.get("alarm", "") if isinstance(extras, dict) else ""
    return TrackerReport(
        ident_of(document.get("device_id"), "device_id"),
        time_of(location.get("timestamp"), "location.timestamp"),
        place_of(
            {
                "latitude": known.get("latitude"),
                "longitude": known.get("longitude"),
                "altitude": known.get("altitude"),
                "speedOverGround": known.get("speed"),
                "courseOverGround": known.get("heading"),
            }
        ),
        alarm if isinstance(alarm, str) else "",
        accuracy_of(coordinates.get("accuracy")),
    )


KIND = TrackerKind("osmand", "OsmAnd and Traccar Client", ("GET", "POST"), read)
