"""Map of a page. The map comes from `map-file` or, at the hub, from a tile server (`map-tiles`)
that the browser calls directly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trio

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.page.tiles import ZOOM_MAX, MapAbout, Tile, UnusableMap
from fieldagent.system.lazy_named_tuple import NamedTuple

OWN_TILE_PATH = "/map/{z}/{x}/{y}"
ZOOM_OF_SERVERS = 19
"""Highest zoom level that tile servers usually have."""


class TileServer(NamedTuple):
    address: str
    """URL of a tile, with the placeholders {z}, {x} and {y}."""
    attribution: str

    def get_origin(self) -> str:
        """Return the origin, which a page's policy must allow."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}"


class CarriedMap:
    """Map of `map-file`, and the reason if the file was unusable at the last check."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.trouble: str | None = None
        self.is_vector = False

    async def read_about(self) -> MapAbout | None:
        """Return the description, or None if there is no usable map."""
        if self.path is None:
            return None
        # Import this module only here, because a program without a map does not need it.
        from fieldagent.page import map_file

        try:
            description = await trio.to_thread.run_sync(map_file.read_about, self.path)
        except UnusableMap as unusable:
            self.trouble = str(unusable)
            return None
        self.trouble, self.is_vector = None, description.vector
        return description

    async def read_tile(self, zoom: int, x: int, y: int) -> Tile | None:
        """Return a tile of the map, or None if it is missing. Raises UnusableMap if the file is
        unusable now, or was unusable for `read_about`.
        """
        if self.path is None:
            return None
        if self.trouble is not None:
            raise UnusableMap(self.trouble)
        from fieldagent.page import map_file

        try:
            return await trio.to_thread.run_sync(map_file.read_tile, self.path, zoom, x, y)
        except UnusableMap as unusable:
            self.trouble = str(unusable)
            raise


def make_map_routes(
    carried_map: CarriedMap,
    judge: Callable[[Request], Awaitable[Any]] | None = None,
    server: TileServer | None = None,
) -> list[Route]:
    """Return the routes of the map. `judge` decides who may see the map. If `judge` is None,
    everyone may see the map.
    """
    map_facts = (
        partial(_serve_about, carried_map)
        if server is None
        else partial(_serve_about_server, server)
    )
    return [
        Route("GET", "/api/map", map_facts, judge),
        Route("GET", "/map/{zoom}/{x}/{y}", partial(_serve_tile, carried_map), judge),
    ]


async def _serve_about(
    carried_map: CarriedMap, request: Request, caller: object = None
) -> Response:
    """Return the map's description. If the map is unusable, the page shows coasts, a grid and the
    reason.
    """
    description = await carried_map.read_about()
    members = None if description is None else {**description._asdict(), "address": OWN_TILE_PATH}
    return make_json_response({"map": members, "trouble": carried_map.trouble})


async def _serve_about_server(
    server: TileServer, request: Request, caller: object = None
) -> Response:
    description = MapAbout("", server.attribution, 0, ZOOM_OF_SERVERS, None)
    return make_json_response(
        {"map": {**description._asdict(), "address": server.address}, "trouble": None}
    )


async def _serve_tile(
    carried_map: CarriedMap, request: Request, zoom: str, x: str, y: str, caller: object = None
) -> Response:
    tile_numbers = [
        int(each) if each.isdecimal() and len(each) < 9 else -1 for each in (zoom, x, y)
    ]
    if carried_map.path is None or not 0 <= tile_numbers[0] <= ZOOM_MAX or min(tile_numbers) < 0:
        raise Problem(404, "the map has no such tile: /map/ZOOM/X/Y, with a map-file")
    if max(tile_numbers[1:]) >= 2 ** tile_numbers[0]:
        raise Problem(404, "the map has no such tile: the world ends before it")
    try:
        tile = await carried_map.read_tile(*tile_numbers)
    except UnusableMap as unusable:
        raise Problem(404, str(unusable)) from None
    if tile is None and carried_map.is_vector:
        # A missing tile is not an error, because a map has no tiles outside its region.
        return Response(204)
    if tile is None:
        raise Problem(404, "the map has no such tile")
    packed = (("Content-Encoding", "gzip"),) if tile.is_compressed else ()
    cache_header = ("Cache-Control", "max-age=86400")
    return Response(200, tile.content, tile.kind, (cache_header, *packed))
