"""Description of positions and the map, in OpenAPI."""

from __future__ import annotations

from fieldagent.http.openapi import (
    always,
    call,
    in_formats,
    listed,
    open_record,
    or_null,
    query,
    text,
)
from fieldagent.hub.description.common import (
    MAY_NOT_READ,
    NEXT_LINK,
    OF_SENDER,
    PAGE,
    PUSHER,
    READER,
    SINCE_PARAMETER,
    UNTIL_PARAMETER,
)
from fieldagent.hub.description.pushes import SEEN
from fieldagent.package.tracks import CONTENT_TYPES
from fieldagent.page import map_description

_POSITIONS = open_record(
    {
        "type": always("FeatureCollection"),
        "features": listed({"type": "object"}),
        "next": or_null(text()),
    }
)
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
            SINCE_PARAMETER,
            UNTIL_PARAMETER,
            *PAGE,
            query(
                "format", text(enum=list(CONTENT_TYPES)), "Format (by Accept, otherwise GeoJSON)"
            ),
        ],
    ),
    *map_description.describe_calls(
        "Return the console's map (map-file or map-tiles)", PUSHER, {403: MAY_NOT_READ}
    ),
)
