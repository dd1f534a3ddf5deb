"""A page's map: of `map-file`, or at the hub of a server of tiles (`map-tiles`), which the browser
asks itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import trio

from fieldagent.http.message import Request, Response, json_response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.page import map_file
from fieldagent.page.map_file import MapAbout, UnusableMap

OURS = "/map/{z}/{x}/{y}"
ZOOM_OF_SERVERS = 19
"""The closest look that servers of tiles have, as a rule."""


class TileServer(NamedTuple):
    address: str
    """With {z}, {x} and {y} in it."""
    attribution: str

    def origin(self) -> str:
        """Which a page's policy must let in."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}"


def routes(
    path: Path | None,
    judge: Callable[[Request], Awaitable[Any]] | None = None,
    server: TileServer | None = None,
) -> list[Route]:
    """`judge` says who may see it; without one, everybody."""
    about = partial(_about, path) if server is None else partial(_about_server, server)
    return [
        Route("GET", "/api/map", about, judge),
        Route("GET", "/map/{zoom}/{x}/{y}", partial(_tile, path), judge),
    ]


async def _about(path: Path | None, request: Request, caller: object = None) -> Response:
    """Where it cannot be used, the page has a grid, and says why."""
    if path is None:
        return json_response({"map": None, "trouble": None})
    try:
        found = await trio.to_thread.run_sync(map_file.about, path)
    except UnusableMap as unusable:
        return json_response({"map": None, "trouble": str(unusable)})
    return json_response({"map": {**found._asdict(), "address": OURS}, "trouble": None})


async def _about_server(server: TileServer, request: Request, caller: object = None) -> Response:
    told = MapAbout("", server.attribution, 0, ZOOM_OF_SERVERS, None)
    return json_response({"map": {**told._asdict(), "address": server.address}, "trouble": None})


async def _tile(
    path: Path | None, request: Request, zoom: str, x: str, y: str, caller: object = None
) -> Response:
    place = [int(each) if each.isdecimal() and len(each) < 9 else -1 for each in (zoom, x, y)]
    if path is None or not 0 <= place[0] <= map_file.ZOOM_MAX or min(place) < 0:
        raise Problem(404, "the map has no such tile: /map/ZOOM/X/Y, with a map-file")
    try:
        found = await trio.to_thread.run_sync(partial(map_file.tile, path, *place))
    except UnusableMap as unusable:
        raise Problem(404, str(unusable)) from None
    if found is None:
        raise Problem(404, "the map has no such tile")
    content, kind = found
    return Response(200, content, kind, (("Cache-Control", "max-age=86400"),))
