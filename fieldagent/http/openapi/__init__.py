"""What each API is, in OpenAPI 3.1: data, which tests hold against the code and the wire."""

from __future__ import annotations

from fieldagent.http.message import Request, Response
from fieldagent.http.routes import Route


def route(name: str) -> Route:
    """`GET /openapi.json` of the API `local` or `hub`; read when it is asked for."""

    async def describe(request: Request) -> Response:
        # It takes some of the time in which an agent starts, and is wanted now and then.
        from importlib.resources import files

        return Response(200, (files(__name__) / f"{name}.json").read_bytes())

    return Route("GET", "/openapi.json", describe)
