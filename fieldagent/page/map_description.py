"""OpenAPI description of the routes in `map_tiles`."""

from __future__ import annotations

from fieldagent.http.openapi import (
    NO_ANSWERS,
    OPEN_ACCESS,
    Access,
    Answers,
    Call,
    answer,
    answer_in_formats,
    boolean,
    call,
    integer,
    list_of,
    nullable,
    number,
    record,
    segment,
    text,
)
from fieldagent.page.tiles import ZOOM_MAX

_MAP = answer(
    "null if there is no usable map",
    record(
        {
            "map": nullable(
                record(
                    {
                        "name": text(),
                        "attribution": text(),
                        "lowest": integer(),
                        "highest": integer(),
                        "bounds": nullable(list_of(number())),
                        "address": text(
                            "URL of its tiles: {z}, {x} and {y} are zoom level, column and row"
                        ),
                        "vector": boolean(
                            "True for Mapbox vector tiles of Protomaps' basemap, false for pictures"
                        ),
                    }
                )
            ),
            "trouble": nullable(text("Reason why map-file cannot be used")),
        }
    ),
)
_PLACE = integer(minimum=0, maximum=2**ZOOM_MAX - 1)
_SEGMENTS = [
    segment("zoom", integer(minimum=0, maximum=ZOOM_MAX), f"0 to {ZOOM_MAX}"),
    segment("x", _PLACE, "Column, from the west"),
    segment("y", _PLACE, "Row, from the north"),
]
_MEDIA = ("image/png", "image/jpeg", "image/webp", "application/vnd.mapbox-vector-tile")
_TILE_ANSWERS: Answers = {
    200: answer_in_formats("A picture, or vector data", {media: {} for media in _MEDIA}),
    204: "The vector map has nothing there",
    404: "There is no map",
}


def describe_calls(
    summary: str, access: Access = OPEN_ACCESS, answers: Answers = NO_ANSWERS
) -> tuple[Call, Call]:
    """Return the descriptions of the two routes of a map."""
    return (
        call("GET /api/map", f"map: {summary}", {**answers, 200: _MAP}, access),
        call(
            "GET /map/{zoom}/{x}/{y}",
            "mapTile: Return a tile of the map",
            {**answers, **_TILE_ANSWERS},
            access,
            parameters=_SEGMENTS,
        ),
    )
