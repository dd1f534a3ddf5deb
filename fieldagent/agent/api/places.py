"""`GET /api/positions`: positions for a map or for saving."""

from __future__ import annotations

from fieldagent.agent.assembly import Parts
from fieldagent.agent.journal import places
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.query import read_integer, read_one_of, refuse_others
from fieldagent.package import tracks

DEFAULT_COUNT, NEWEST_MAX = 500, 5_000


async def answer_positions(parts: Parts, request: Request) -> Response:
    """Return the newest positions of this kit and of others. The query parameter `of` limits the
    response to this kit's positions or to those of others.
    """
    refuse_others(request, ("format", "limit", "of"))
    format_name = read_one_of(request, "format", tuple(tracks.CONTENT_TYPES)) or "geojson"
    owner = read_one_of(request, "of", ("own", "others"))
    limit = read_integer(request, "limit", DEFAULT_COUNT, range(1, NEWEST_MAX + 1))
    own, others = await places.list_newest(parts.journal, limit)
    entries = [*(own if owner != "others" else ()), *(others if owner != "own" else ())]
    saved = ("Content-Disposition", f'attachment; filename="fieldagent.{format_name}"')
    if format_name in tracks.DOCUMENTS:
        body = tracks.DOCUMENTS[format_name](entries).encode("utf-8", "replace")
        return Response(200, body, tracks.CONTENT_TYPES[format_name], (saved,))
    response = make_json_response(tracks.make_geojson(entries), headers=(saved,))
    return response._replace(content_type=tracks.CONTENT_TYPES[format_name])
