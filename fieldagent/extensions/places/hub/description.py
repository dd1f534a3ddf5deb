"""The description of the calls of this extension."""

from __future__ import annotations

from fieldagent.extensions.places.hub.documents import FORMATS
from fieldagent.http.openapi import (
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
    text,
    words,
)
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

CALLS = (
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
