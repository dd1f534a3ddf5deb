"""Reports of third-party trackers, in the form of each kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from fieldagent.extensions.places.hub.tracker_door import KINDS
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.http.query import query_pairs
from fieldagent.hub.field.trackers import TrackerReport

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
SECONDS = int(NOON.timestamp())
THERE = {"latitude": 45.91, "longitude": 7.61}
TRACCAR = {
    "position": {
        "id": 18336,
        "attributes": {"batteryLevel": 80},
        "deviceId": 7,
        "protocol": "gl200",
        "fixTime": "2026-11-22T12:00:00.000+0000",
        "valid": True,
        "latitude": 45.91,
        "longitude": 7.61,
        "altitude": 2100.0,
        "speed": 10.0,
        "course": 270.0,
    },
    "device": {"id": 7, "name": "Dog", "uniqueId": "867567"},
}
"""A position as Traccar's server forwards it."""
CLIENT = {
    "location": {
        "timestamp": "2026-11-22T12:00:00.000Z",
        "coords": {
            "latitude": 45.91,
            "longitude": 7.61,
            "accuracy": 5,
            "speed": -1,
            "heading": -1,
            "altitude": 2100.0,
        },
        "is_moving": False,
        "battery": {"level": 0.8, "is_charging": False},
        "extras": {},
    },
    "device_id": "123456",
}
"""As Traccar Client 9 sends it."""
PHONE = {
    "_type": "location",
    "lat": 45.91,
    "lon": 7.61,
    "tst": SECONDS,
    "acc": 5,
    "alt": 2100,
    "vel": 36,
    "cog": 270,
    "batt": 80,
    "tid": "ad",
    "topic": "owntracks/ada/phone",
}


def replace_value(document: dict[str, Any], *path: str, value: Any) -> dict[str, Any]:
    """Return a copy with another value at that path."""
    copy: dict[str, Any] = json.loads(json.dumps(document))
    inner = copy
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return copy


def make_request(query: str = "", body: Any = None, **headers: str) -> Request:
    """Return a request as the server makes it. A text body stays unchanged."""
    if body is None:
        return Request("POST", "/", query_pairs(query), {})
    text = body if isinstance(body, str) else json.dumps(body)
    head = {"content-length": str(len(text)), **headers}
    return Request("POST", "/", query_pairs(query), head, text.encode())


FULL = {**THERE, "altitude": 2100.0, "speedOverGround": 10.0, "courseOverGround": 270.0}


def round_position(report: TrackerReport) -> TrackerReport:
    """Return the report with rounded numbers, because knots convert to fractions."""
    place = report.place and {name: round(value, 3) for name, value in report.place.items()}
    return report._replace(place=place)


@pytest.mark.parametrize(
    ("kind", "request_", "report"),
    [
        (
            "osmand",
            make_request(f"id=7&lat=45.91&lon=7.61&timestamp={SECONDS}"),
            TrackerReport("7", NOON, THERE),
        ),
        (
            "osmand",
            make_request(f"deviceid=7&location=45.91,7.61&timestamp={SECONDS}000"),
            TrackerReport("7", NOON, THERE),
        ),
        (
            "osmand",
            make_request(
                "id=7&lat=45.91&lon=7.61&timestamp=2026-11-22T12:00:00Z&speed=19.438&bearing=270"
                "&altitude=2100&accuracy=5&batt=80&hdop=1.2"
            ),
            TrackerReport("7", NOON, FULL, accuracy=5.0),
        ),
        (
            "osmand",
            make_request(body="id=7&lat=45.91&lon=7.61&alarm=sos"),
            TrackerReport("7", None, THERE, "sos"),
        ),
        ("osmand", make_request("id=7&alarm=sos"), TrackerReport("7", None, None, "sos")),
        ("osmand", make_request("id=7&lat=0&lon=0&valid=1"), TrackerReport("7")),
        ("osmand", make_request("id=7&lat=45.91&lon=7.61&valid=false"), TrackerReport("7")),
        (
            "osmand",
            make_request("id=7&lat=45.91&lon=7.61&altitude=-99999"),
            TrackerReport("7", None, THERE),
        ),
        # A wrong accuracy must not cost the position.
        (
            "osmand",
            make_request("id=7&lat=45.91&lon=7.61&accuracy=good"),
            TrackerReport("7", None, THERE),
        ),
        (
            "osmand",
            make_request("id=7&lat=45.91&lon=7.61&timestamp=12"),
            TrackerReport("7", None, THERE),
        ),
        (
            "osmand",
            make_request(body=CLIENT),
            TrackerReport("123456", NOON, {**THERE, "altitude": 2100.0}, accuracy=5.0),
        ),
        (
            "osmand",
            make_request(body=replace_value(CLIENT, "location", "extras", value={"alarm": "sos"})),
            TrackerReport("123456", NOON, {**THERE, "altitude": 2100.0}, "sos", 5.0),
        ),
        (
            "traccar",
            make_request(body=TRACCAR),
            TrackerReport("867567", NOON, {**FULL, "speedOverGround": 5.144}),
        ),
        (
            "traccar",
            make_request(body=replace_value(TRACCAR, "position", "accuracy", value=12.5)),
            TrackerReport("867567", NOON, {**FULL, "speedOverGround": 5.144}, accuracy=12.5),
        ),
        (
            "traccar",
            make_request(
                body=replace_value(TRACCAR, "position", "attributes", "alarm", value="sos")
            ),
            TrackerReport("867567", NOON, {**FULL, "speedOverGround": 5.144}, "sos"),
        ),
        (
            "traccar",
            make_request(
                body={
                    **TRACCAR,
                    "event": {"id": 1, "type": "alarm", "attributes": {"alarm": "fallDown"}},
                }
            ),
            TrackerReport("867567", NOON, {**FULL, "speedOverGround": 5.144}, "fallDown"),
        ),
        (
            "traccar",
            make_request(body={**TRACCAR, "event": {"id": 1, "type": "geofenceEnter"}}),
            None,
        ),
        # A comma instead of the point, as from a phone with a German setting.
        ("osmand", make_request("id=7&lat=45,91&lon=7,61"), TrackerReport("7", None, THERE)),
        (
            "traccar",
            make_request(body=replace_value(TRACCAR, "position", "valid", value=False)),
            TrackerReport("867567", NOON),
        ),
        (
            "owntracks",
            make_request(body=PHONE),
            TrackerReport("ada/phone", NOON, FULL, accuracy=5.0),
        ),
        ("owntracks", make_request(body={"_type": "lwt", "tst": 1}), None),
        (
            "owntracks",
            make_request(body={"_type": "location", "tid": "ad", "lat": 45.91, "lon": 7.61}),
            TrackerReport("ad", None, THERE),
        ),
        (
            "owntracks",
            make_request("u=ben&d=watch", PHONE),
            TrackerReport("ben/watch", NOON, FULL, "", 5.0),
        ),
        ("owntracks", make_request(body=""), None),
    ],
)
def test_tracker_report_of_each_kind_is_read(
    kind: str, request_: Request, report: TrackerReport | None
) -> None:
    result = KINDS[kind].read(request_)
    assert (result and round_position(result)) == report


@pytest.mark.parametrize(
    ("query", "at", "place"),
    [
        (f"id=7&timestamp={SECONDS}&cell=228,01,16,2224&cell=228,01,16,9,-90", NOON, None),
        ("id=7&lat=45.91&lon=7.61&timestamp=2026-11-22T12%3A00%3A00Z&hdop=6.0", NOON, THERE),
        ("lat=45.91&lon=7.61&timestamp=2026-11-22+12%3A00%3A00&id=7", NOON, THERE),
        ("lat=45.91&lon=7.61&vacc=0&hacc=0&deviceid=7", None, THERE),
        (f"id=7&timestamp={SECONDS}&location=45.91,7.61&ignition=true&rpm=933", NOON, THERE),
    ],
)
def test_every_osmand_query_of_traccars_tests_is_read(
    query: str, at: datetime | None, place: dict[str, float] | None
) -> None:
    """The queries are those of Traccar's own tests (OsmAndProtocolDecoderTest)."""
    assert KINDS["osmand"].read(make_request(query)) == TrackerReport("7", at, place)


def test_owntracks_phone_is_identified_by_its_headers() -> None:
    body = {"_type": "location", "lat": 45.91, "lon": 7.61}
    head = {"x-limit-u": "ada", "x-limit-d": "phone"}
    report = KINDS["owntracks"].read(make_request(body=body, **head))
    assert report is not None and report.ident == "ada/phone"


@pytest.mark.parametrize(
    ("kind", "request_", "why"),
    [
        ("osmand", make_request(), "send id, lat, lon and timestamp"),
        ("osmand", make_request("lat=45.91&lon=7.61"), "id must be 1 to 100 characters"),
        ("osmand", make_request("id=7&lat=north&lon=7.61"), "lat must be a number, not 'north'"),
        ("osmand", make_request("id=7&lat=nan&lon=7.61"), "lat must be a number"),
        ("osmand", make_request("id=7&lat=95&lon=7.61"), "latitude must be from -90 to 90"),
        (
            "osmand",
            make_request("id=7&lat=45&lon=7&timestamp=noon"),
            "timestamp must be Unix seconds",
        ),
        ("osmand", make_request(f"id={'7' * 101}&lat=45&lon=7"), "id must be 1 to 100 characters"),
        ("osmand", make_request(body="{"), "the body is not JSON"),
        (
            "osmand",
            make_request(body={"device_id": "7"}),
            "must hold device_id and location.coords",
        ),
        ("traccar", make_request(), "send a body"),
        ("traccar", make_request(body=[]), "must hold device and position"),
        (
            "traccar",
            make_request(body=replace_value(TRACCAR, "device", "uniqueId", value="")),
            "device.uniqueId",
        ),
        (
            "traccar",
            make_request(body=replace_value(TRACCAR, "position", "latitude", value="x")),
            "position.latitude must be a number",
        ),
        ("owntracks", make_request(body="[" * 9), "the body is not JSON"),
        ("owntracks", make_request(body=[1]), "must be a JSON object"),
        (
            "owntracks",
            make_request(body={"_type": "encrypted", "data": "x"}),
            "the position is encrypted",
        ),
        (
            "owntracks",
            make_request(body={"_type": "location", "lat": 1, "lon": 1}),
            "user and device",
        ),
    ],
)
def test_invalid_tracker_report_is_refused_with_the_reason(
    kind: str, request_: Request, why: str
) -> None:
    with pytest.raises(Problem) as refusal:
        KINDS[kind].read(request_)
    assert refusal.value.status in (400, 411) and why in refusal.value.detail


def numbers_in(document: dict[str, Any], *above: str) -> Iterator[tuple[str, ...]]:
    """Yield the path of each number."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from numbers_in(value, *above, name)
        elif isinstance(value, int | float):
            yield (*above, name)


@pytest.mark.parametrize("digits", ["4" * 401, "-" + "4" * 401, "4" * 5000, "1e400"])
@pytest.mark.parametrize(
    ("kind", "document"), [("traccar", TRACCAR), ("osmand", CLIENT), ("owntracks", PHONE)]
)
def test_number_of_any_length_is_refused_or_omitted(
    kind: str, document: dict[str, Any], digits: str
) -> None:
    """An unexpected error would be answered with 500."""
    for path in numbers_in(document):
        marked = json.dumps(replace_value(document, *path, value="@"))
        for written in (digits, f'"{digits}"'):
            request = make_request(body=marked.replace('"@"', written), **OF_A_PHONE)
            try:
                KINDS[kind].read(request)
            except Problem as refusal:
                assert refusal.status == 400 and len(refusal.detail) < 200
            else:
                assert path[-1] not in ("lat", "latitude", "lon", "longitude")


OF_A_PHONE = {"x-limit-u": "ada", "x-limit-d": "phone"}
NO_NUMBER = "lat must be a number, not 'north'"


@pytest.mark.parametrize(
    ("kind", "request_", "report"),
    [
        (
            "traccar",
            make_request(
                body=replace_value(
                    TRACCAR, "position", "attributes", "alarm", value="lowBattery,sos"
                )
            ),
            TrackerReport(
                "867567", NOON, {**FULL, "speedOverGround": 5.144}, alarm="lowBattery,sos"
            ),
        ),
        (
            "traccar",
            make_request(
                body=replace_value(TRACCAR, "position", "attributes", "alarm", value=["tow", "SOS"])
            ),
            TrackerReport("867567", NOON, {**FULL, "speedOverGround": 5.144}, alarm="tow,SOS"),
        ),
        # The event names one alarm, and its position another.
        (
            "traccar",
            make_request(
                body={
                    **replace_value(TRACCAR, "position", "attributes", "alarm", value="sos"),
                    "event": {"type": "deviceMoving", "attributes": {"alarm": "tow"}},
                }
            ),
            TrackerReport("867567", NOON, {**FULL, "speedOverGround": 5.144}, alarm="tow,sos"),
        ),
        (
            "traccar",
            make_request(
                body={
                    "device": {"uniqueId": "7"},
                    "position": {
                        "fixTime": "today",
                        "latitude": "north",
                        "longitude": 7,
                        "speed": {},
                        "attributes": {"alarm": "sos"},
                    },
                }
            ),
            TrackerReport(
                *("7", None, None, "sos"),
                unread="position.fixTime must be Unix seconds or an ISO 8601 time;"
                " position.latitude must be a number, not 'north'",
            ),
        ),
        (
            "osmand",
            make_request("id=7&lat=45.91&lon=7.61&altitude=NaN&speed=fast&bearing=N&alarm=sos"),
            TrackerReport("7", None, THERE, "sos"),
        ),
        (
            "osmand",
            make_request("id=7&lat=45,91&lon=7,61&alarm=sos"),
            TrackerReport("7", None, THERE, "sos"),
        ),
        ("osmand", make_request("id=7&alarm=tow&alarm=sos"), TrackerReport("7", alarm="tow,sos")),
        (
            "osmand",
            make_request("id=7&alarm=sos", body="alarm=tow"),
            TrackerReport("7", alarm="sos,tow"),
        ),
        (
            "osmand",
            make_request("id=7&lat=north&lon=7.61&alarm=sos"),
            TrackerReport("7", alarm="sos", unread=NO_NUMBER),
        ),
        (
            "osmand",
            make_request(f"id=7&lat={'4' * 401}&lon=7.61&alarm=sos"),
            TrackerReport("7", alarm="sos", unread=f"lat must be a number, not {'4' * 40!r}"),
        ),
        (
            "osmand",
            make_request("id=7&lat=95&lon=7.61&alarm=sos"),
            TrackerReport(
                "7", alarm="sos", unread="latitude must be from -90 to 90 degrees, not 95"
            ),
        ),
        (
            "osmand",
            make_request("id=7&lat=45.91&lon=7.61&timestamp=noon&alarm=sos"),
            TrackerReport(
                *("7", None, THERE, "sos"),
                unread="timestamp must be Unix seconds or an ISO 8601 time",
            ),
        ),
        (
            "osmand",
            make_request(body={"device_id": 7, "alarm": "sos"}),
            TrackerReport("7", alarm="sos"),
        ),
        (
            "osmand",
            make_request(
                body={
                    "device_id": "7",
                    "location": {"coords": {"latitude": 10**400}, "extras": {"alarm": "sos"}},
                }
            ),
            TrackerReport(
                *("7", None, None, "sos"),
                unread=f"latitude must be a number, not {str(10**400)[:40]!r}",
            ),
        ),
    ],
)
def test_alarm_is_read_despite_unreadable_members(
    kind: str, request_: Request, report: TrackerReport
) -> None:
    result = KINDS[kind].read(request_)
    assert result is not None and round_position(result) == report


@pytest.mark.parametrize("field", ["altitude", "speed", "bearing"])
@pytest.mark.parametrize("value", ["NaN", "inf", "high", "1e999"])
def test_unreadable_altitude_or_speed_is_omitted(field: str, value: str) -> None:
    report = KINDS["osmand"].read(make_request(f"id=7&lat=45.91&lon=7.61&{field}={value}"))
    assert report == TrackerReport("7", None, THERE)
