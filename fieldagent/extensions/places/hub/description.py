"""OpenAPI description of the calls that this extension adds."""

from __future__ import annotations

from fieldagent.extensions.places.hub.documents import FORMATS
from fieldagent.extensions.places.hub.fences import REPORTED_CROSSINGS
from fieldagent.extensions.places.hub.places_api import KITS_MAX
from fieldagent.extensions.places.hub.shape import RADIUS_LEAST, RADIUS_MOST
from fieldagent.http.openapi import (
    JSON,
    NULL,
    Access,
    Body,
    answer,
    answer_in_formats,
    boolean,
    call,
    constant,
    enumeration,
    integer,
    list_of,
    mapping,
    named_record,
    nullable,
    number,
    one_of,
    query,
    record,
    segment,
    text,
    with_description,
)
from fieldagent.http.openapi_parts import (
    COORDINATE_TEXT,
    HTTP_PROBLEM,
    IDEMPOTENCY_KEY,
    MALFORMED,
    NAMED_RECORD,
    SAFE_INTEGER_MAX,
    TIMESTAMP,
    coordinate_fields,
)
from fieldagent.hub.description.common import (
    ADMINISTRATOR,
    DEVICE_NAMED,
    DISK_FULL,
    DISPATCHER,
    LABEL,
    NOT_NOW,
    NOT_THERE,
    PLACE,
    READER,
    STATE,
    describe_line,
)
from fieldagent.hub.description.devices import DAY_COST

_TO_KIT = record({"kind": text(), "state": STATE, "over": nullable(text()), "count": integer()})
KIT_WEEK = named_record(
    "KitWeek",
    {
        "kit": record({"id": integer(), "name": text(), "user": text()}),
        "week": text(),
        "begins": number(),
        "ends": number(),
        "made": number(),
        "complete": boolean(
            "false if the report is incomplete, because there are more than 50 000 "
            "items in one direction"
        ),
        "positions": list_of(PLACE),
        "unproved": integer("Ignored positions, because the sender is not verified"),
        "gaps": list_of(
            record({"from": number(), "to": number()}),
            "Gaps without a position: three times the usual interval, and at least 15 minutes",
        ),
        "fromKit": mapping(integer(), "Number of items that the hub has stored, by kind"),
        "toKit": list_of(_TO_KIT),
        "incidents": list_of({"type": "object"}, "As in /api/sos/{id}"),
        "costs": list_of(DAY_COST),
        "money": nullable(text()),
    },
)
_TRACKER = Access(
    answers={
        200: "The report is on disk",
        400: MALFORMED,
        404: "The address is not valid, or the tracker was not added",
        429: HTTP_PROBLEM,
    }
)
_SECRET = segment(
    "secret",
    text(pattern="^source_[A-Za-z0-9_-]{43}$"),
    "Secret of the address, as `fieldagent hub tracker source add` showed it",
)
_OSMAND = [
    _SECRET,
    query("id", text(pattern="^[!-~]{1,100}$"), "Id that the tracker sends"),
    query("lat", number(), "Degrees"),
    query("lon", number(), "Degrees"),
    query(
        "timestamp",
        text(pattern="^[0-9T:Z.+ -]*$"),
        "Unix seconds or milliseconds, or ISO 8601; now if it is missing",
    ),
    query("altitude", number(), "m"),
    query("speed", number(), "Knots"),
    query("bearing", number(), "Degrees"),
    query("alarm", text(pattern="^[A-Za-z]*$"), "Such as sos"),
]
CIRCLE = named_record("Circle", {"latitude": number(), "longitude": number(), "radius": number()})
POLYGON = named_record(
    "Polygon",
    {"type": constant("Polygon"), "coordinates": list_of(list_of(list_of(number())))},
    "GeoJSON (RFC 7946), at most 500 points; across the antimeridian from 179 to -179",
)
FENCE = named_record(
    "Fence",
    {
        "id": integer(),
        "name": text(),
        "alarmOn": enumeration(*REPORTED_CROSSINGS),
        "devices": one_of(
            NULL,
            list_of(DEVICE_NAMED),
            description="Kits of the fence; null for all, or for those of the group",
        ),
        "group": one_of(NULL, NAMED_RECORD),
        "circle?": CIRCLE,
        "polygon?": POLYGON,
    },
    "Area on the map, a circle or a polygon: an alarm if a kit crosses its edge",
)
ROUTE = named_record(
    "Route",
    {
        "id": integer(),
        "device": DEVICE_NAMED,
        "name": text("Name of the place"),
        "circle": CIRCLE,
        "due": number(),
        "margin": integer("Seconds after that time until the kit is overdue"),
        "created": number(),
        "state": enumeration("under way", "overdue", "arrived", "ended"),
        "arrived": nullable(number("Time of the position within the place, by its kit")),
        "incident": nullable(integer("The alarm that the kit is overdue")),
        "ended": nullable(number()),
        "endedBy": text(),
        "why": text(),
    },
    "A place at which a kit must be by a time",
)

_GIVEN_CIRCLE = record(
    {
        **coordinate_fields(COORDINATE_TEXT),
        "radius": number("Metres", minimum=int(RADIUS_LEAST), maximum=int(RADIUS_MOST)),
    }
)
_KIT = integer(minimum=1, maximum=SAFE_INTEGER_MAX)
_FOR = {
    "alarmOn?": enumeration(
        *REPORTED_CROSSINGS, None, description="Crossing that raises an alarm (both)"
    ),
    "devices?": nullable(
        list_of(_KIT, "Numbers of the kits (all kits)", minItems=1, maxItems=KITS_MAX)
    ),
    "group?": nullable(LABEL, "Number or name of a group: only for kits of its users"),
}
_GIVEN_POLYGON = {"type": "object", "description": "A GeoJSON Polygon, or one Feature with it"}
_DUE = {**TIMESTAMP}
del _DUE["examples"]


CALLS = (
    call(
        "GET /api/fences",
        "fences: List fences of the workspace",
        answer("All fences", record({"fences": list_of(FENCE)})),
        READER,
    ),
    call(
        "POST /api/fences",
        "fenceAdd: Add a fence; for dispatchers and administrators",
        {
            201: answer("The fence is added", FENCE),
            409: "The polygon has a fault, a kit or group does not exist, or the name is used",
        },
        DISPATCHER,
        body=one_of(
            record({"name": LABEL, "circle": _GIVEN_CIRCLE, **_FOR}),
            record({"name": LABEL, "polygon": _GIVEN_POLYGON, **_FOR}),
        ),
    ),
    call(
        "DELETE /api/fences/{id}",
        "fenceRemove: Remove a fence; its alarms stay",
        {204: "The fence is removed", 404: NOT_THERE, 503: NOT_NOW, 507: DISK_FULL},
        DISPATCHER,
    ),
    call(
        "GET /api/routes",
        "routes: List open routes, and the newest 200 that have ended",
        answer("Newest first", record({"routes": list_of(ROUTE)})),
        READER,
    ),
    call(
        "POST /api/routes",
        "routeAdd: Add a route: a kit must be at a place by a time; for dispatchers and "
        "administrators",
        {
            201: answer("The route is added", ROUTE),
            409: "The time has passed, or the kit does not exist",
        },
        DISPATCHER,
        parameters=[IDEMPOTENCY_KEY],
        body=record(
            {
                "device": with_description("Number of the kit", _KIT),
                "circle": _GIVEN_CIRCLE,
                "due": _DUE,
                "margin?": nullable(integer("Seconds (1800)", minimum=0, maximum=604800)),
                "name?": nullable(LABEL, "Name of the place"),
            }
        ),
    ),
    call(
        "POST /api/routes/{id}/end",
        "routeEnd: End a route",
        {
            200: answer("The route after its end", ROUTE),
            404: NOT_THERE,
            409: "The route has ended, or the reason is missing",
        },
        DISPATCHER,
        body=record({"why": describe_line(500)}),
    ),
    call(
        "GET /source/osmand/{secret}",
        "osmandReport: Accept a position or alarm in OsmAnd's protocol",
        {},
        _TRACKER,
        parameters=_OSMAND,
    ),
    call(
        "POST /source/osmand/{secret}",
        "osmandReportPosted: The same as a form, or as JSON of Traccar Client 9",
        {},
        _TRACKER,
        parameters=_OSMAND,
        body=Body(
            {
                JSON: {"type": "object", "description": "Format of Traccar Client"},
                "application/x-www-form-urlencoded": {"type": "object"},
            },
            required=False,
        ),
    ),
    call(
        "POST /source/traccar/{secret}",
        "traccarReport: Accept a position or event that a Traccar server forwards",
        {},
        _TRACKER,
        parameters=[_SECRET],
        body={"type": "object", "description": "device, position and event of Traccar's API"},
    ),
    call(
        "POST /source/owntracks/{secret}",
        "owntracksReport: Accept a position of OwnTracks in HTTP mode",
        {},
        _TRACKER,
        parameters=[_SECRET],
        body={
            "type": "object",
            "description": "_type and its members, as in the OwnTracks booklet",
        },
    ),
    call(
        "GET /api/devices/{id}/report",
        "deviceReport: Return a report of a kit's week: places, messages, incidents, cost",
        answer_in_formats(
            "The report",
            {
                "application/json": KIT_WEEK,
                "text/csv": text(),
                "application/gpx+xml": text(),
                "application/vnd.google-earth.kml+xml": text(),
                "text/html": text(),
            },
        ),
        ADMINISTRATOR,
        parameters=[
            query(
                "week",
                text(pattern="^20[0-9]{2}-W(0[1-9]|[1-4][0-9]|5[0-2])$"),
                "Week by ISO 8601, in UTC (this week)",
            ),
            query("format", enumeration("json", *FORMATS), "Format (json)"),
        ],
    ),
)
