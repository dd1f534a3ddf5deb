"""A page's map: of `map-file`, or at the hub of a server of tiles (`map-tiles`), which the browser
asks itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trio

from fieldagent.http.message import Request, Response, json_response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.page.tiles import ZOOM_MAX, MapAbout, Tile, UnusableMap
from fieldagent.system.lazy_named_tuple import NamedTuple

OURS = "/map/{z}/{x}/{y}"
ZOOM_OF_SERVERS = 19
"""The closest look that servers of tiles have, as a rule."""


class TileServer(NamedTuple):
    address: str
    """With {z}, {x} and {y} in it."""
    attribution: str

    def origin(self) -> str:
        """Return the origin, which a page's policy must let in."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}"


class CarriedMap:
    """The map of `map-file`, and why it could not be used when it was looked at last."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.trouble: str | None = None
        self.is_vector = False

    async def about(self) -> MapAbout | None:
        """Return None where there is none, or none that can be used."""
        if self.path is None:
            return None
        # Who carries no map does without what reads one.
        from fieldagent.page import map_file

        try:
            description = await trio.to_thread.run_sync(map_file.about, self.path)
        except UnusableMap as unusable:
            self.trouble = str(unusable)
            return None
        self.trouble, self.is_vector = None, description.vector
        return description

    async def tile(self, zoom: int, x: int, y: int) -> Tile | None:
        """Return a tile of the map; None without a map, or without that tile. Raises UnusableMap,
        also for a file that `about` found to be unusable."""
        if self.path is None:
            return None
        if self.trouble is not None:
            raise UnusableMap(self.trouble)
        from fieldagent.page import map_file

        try:
            return await trio.to_thread.run_sync(map_file.tile, self.path, zoom, x, y)
        except UnusableMap as unusable:
            self.trouble = str(unusable)
            raise


def routes(
    carried: CarriedMap,
    judge: Callable[[Request], Awaitable[Any]] | None = None,
    server: TileServer | None = None,
) -> list[Route]:
    """Return the routes of the map. `judge` says who may see it; without one, everybody."""
    about = partial(_about, carried) if server is None else partial(_about_server, server)
    return [
        Route("GET", "/api/map", about, judge),
        Route("GET", "/map/{zoom}/{x}/{y}", partial(_tile, carried), judge),
    ]


async def _about(carried: CarriedMap, request: Request, caller: object = None) -> Response:
    """Where it cannot be used, the page has coasts and a grid, and says why."""
    description = await carried.about()
    members = None if description is None else {**description._asdict(), "address": OURS}
    return json_response({"map": members, "trouble": carried.trouble})


async def _about_server(server: TileServer, request: Request, caller: object = None) -> Response:
    description = MapAbout("", server.attribution, 0, ZOOM_OF_SERVERS, None)
    return json_response(
        {"map": {**description._asdict(), "address": server.address}, "trouble": None}
    )


async def _tile(
    carried: CarriedMap, request: Request, zoom: str, x: str, y: str, caller: object = None
) -> Response:
    place = [int(each) if each.isdecimal() and len(each) < 9 else -1 for each in (zoom, x, y)]
    if carried.path is None or not 0 <= place[0] <= ZOOM_MAX or min(place) < 0:
        raise Problem(404, "the map has no such tile: /map/ZOOM/X/Y, with a map-file")
    if max(place[1:]) >= 2 ** place[0]:
        raise Problem(404, "the map has no such tile: the world ends before it")
    try:
        tile = await carried.tile(*place)
    except UnusableMap as unusable:
        raise Problem(404, str(unusable)) from None
    if tile is None and carried.is_vector:
        # Beyond the edge of a region there is nothing to draw, and that is no fault.
        return Response(204)
    if tile is None:
        raise Problem(404, "the map has no such tile")
    packed = (("Content-Encoding", "gzip"),) if tile.packed else ()
    kept = ("Cache-Control", "max-age=86400")
    return Response(200, tile.content, tile.kind, (kept, *packed))
