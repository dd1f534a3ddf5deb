"""The description of the calls of this extension."""

from __future__ import annotations

from fieldagent.extensions.places.hub.documents import FORMATS
from fieldagent.http.openapi import (
    JSON,
    Access,
    Body,
    boolean,
    call,
    in_formats,
    integer,
    listed,
    mapping,
    named_record,
    number,
    or_null,
    query,
    record,
    segment,
    text,
    words,
)
from fieldagent.http.openapi_parts import MALFORMED, OF_HTTP
from fieldagent.hub.description.common import ADMINISTRATOR, PLACE, STATE
from fieldagent.hub.description.devices import DAY_COST

_TO_KIT = record({"kind": text(), "state": STATE, "over": or_null(text()), "count": integer()})
KIT_WEEK = named_record(
    "KitWeek",
    {
        "kit": record({"id": integer(), "name": text(), "user": text()}),
        "week": text(),
        "begins": number(),
        "ends": number(),
        "made": number(),
        "complete": boolean("false if a report cannot hold everything: 50 000 of either direction"),
        "positions": listed(PLACE),
        "unproved": integer("Ignored positions, because the sender is not verified"),
        "gaps": listed(
            record({"from": number(), "to": number()}),
            "Gaps without a position: three times the usual interval, and at least 15 minutes",
        ),
        "fromKit": mapping(integer(), "Number of items that the hub has stored, by kind"),
        "toKit": listed(_TO_KIT),
        "incidents": listed({"type": "object"}, "As in /api/sos/{id}"),
        "costs": listed(DAY_COST),
        "money": or_null(text()),
    },
)
_TRACKER = Access(
    answers={
        200: "The report is on disk",
        400: MALFORMED,
        404: "The address is not valid, or the tracker was not added",
        429: OF_HTTP,
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

CALLS = (
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
        in_formats(
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
            query("format", words("json", *FORMATS), "Format (json)"),
        ],
    ),
)
