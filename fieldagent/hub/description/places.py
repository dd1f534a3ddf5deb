"""The description of positions, the map, fences and routes."""

from __future__ import annotations

from fieldagent.http.openapi import (
    NULL,
    always,
    answer,
    call,
    described,
    in_formats,
    integer,
    listed,
    named_record,
    number,
    one_of,
    open_record,
    or_null,
    query,
    record,
    text,
    words,
)
from fieldagent.http.openapi_parts import (
    AS_TEXT_TOO,
    IDEMPOTENCY_KEY,
    NAMED,
    SAFE_MAX,
    TIMESTAMP,
    coordinates,
)
from fieldagent.hub.api.places_api import KITS_MAX
from fieldagent.hub.description.common import (
    DEVICE_NAMED,
    DISK_FULL,
    DISPATCHER,
    LABEL,
    MAY_NOT_READ,
    NEXT_LINK,
    NOT_NOW,
    NOT_THERE,
    OF_SENDER,
    PAGE,
    PUSHER,
    READER,
    SINCE,
    UNTIL,
    line,
)
from fieldagent.hub.description.pushes import SEEN
from fieldagent.hub.places.fences import TELLS
from fieldagent.hub.places.shape import RADIUS_LEAST, RADIUS_MOST
from fieldagent.package.tracks import CONTENT_TYPES
from fieldagent.page import map_description

CIRCLE = named_record("Circle", {"latitude": number(), "longitude": number(), "radius": number()})
POLYGON = named_record(
    "Polygon",
    {"type": always("Polygon"), "coordinates": listed(listed(listed(number())))},
    "GeoJSON (RFC 7946), at most 500 points; across the antimeridian from 179 to -179",
)
FENCE = named_record(
    "Fence",
    {
        "id": integer(),
        "name": text(),
        "tells": words(*TELLS),
        "devices": one_of(
            NULL,
            listed(DEVICE_NAMED),
            about="Kits of the fence; null for all, or for those of the group",
        ),
        "group": one_of(NULL, NAMED),
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
        "state": words("under way", "overdue", "arrived", "ended"),
        "arrived": or_null(number("Time of the position within the place, by its kit")),
        "incident": or_null(integer("The alarm that the kit is overdue")),
        "ended": or_null(number()),
        "endedBy": text(),
        "why": text(),
    },
    "A place at which a kit must be by a time",
)

_GIVEN_CIRCLE = record(
    {
        **coordinates(AS_TEXT_TOO),
        "radius": number("Metres", minimum=int(RADIUS_LEAST), maximum=int(RADIUS_MOST)),
    }
)
_KIT = integer(minimum=1, maximum=SAFE_MAX)
_FOR = {
    "tells?": words(*TELLS, None, about="Crossing that raises an alarm (both)"),
    "devices?": or_null(
        listed(_KIT, "Numbers of the kits (all kits)", minItems=1, maxItems=KITS_MAX)
    ),
    "group?": or_null(LABEL, "Number or name of a group: only for kits of its users"),
}
_GIVEN_POLYGON = {"type": "object", "description": "A GeoJSON Polygon, or one Feature with it"}
_POSITIONS = open_record(
    {
        "type": always("FeatureCollection"),
        "features": listed({"type": "object"}),
        "next": or_null(text()),
    }
)
_DUE = {**TIMESTAMP}
del _DUE["examples"]

CALLS = (
    call(
        "GET /api/positions",
        "positions: Return positions as GeoJSON or GPX, newest first",
        in_formats(
            SEEN,
            {
                CONTENT_TYPES["geojson"]: _POSITIONS,
                CONTENT_TYPES["gpx"]: text(),
                CONTENT_TYPES["kml"]: text(),
            },
            headers=NEXT_LINK,
        ),
        READER,
        parameters=[
            OF_SENDER,
            SINCE,
            UNTIL,
            *PAGE,
            query(
                "format", text(enum=list(CONTENT_TYPES)), "Format (by Accept, otherwise GeoJSON)"
            ),
        ],
    ),
    *map_description.calls(
        "Return the console's map (map-file or map-tiles)", PUSHER, {403: MAY_NOT_READ}
    ),
    call(
        "GET /api/fences",
        "fences: List fences of the workspace",
        answer("All fences", record({"fences": listed(FENCE)})),
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
        answer("Newest first", record({"routes": listed(ROUTE)})),
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
                "device": described("Number of the kit", _KIT),
                "circle": _GIVEN_CIRCLE,
                "due": _DUE,
                "margin?": or_null(integer("Seconds (1800)", minimum=0, maximum=604800)),
                "name?": or_null(LABEL, "Name of the place"),
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
        body=record({"why": line(500)}),
    ),
)
