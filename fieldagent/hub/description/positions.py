"""Description of positions and the map, in OpenAPI."""

from __future__ import annotations

from fieldagent.http.openapi import (
    answer_in_formats,
    call,
    constant,
    extensible_record,
    list_of,
    nullable,
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

_POSITIONS = extensible_record(
    {
        "type": constant("FeatureCollection"),
        "features": list_of({"type": "object"}),
        "next": nullable(text()),
    }
)
CALLS = (
    call(
        "GET /api/positions",
        "positions: Return positions as GeoJSON or GPX, newest first",
        answer_in_formats(
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
