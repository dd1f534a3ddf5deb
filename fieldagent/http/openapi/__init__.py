"""What each API is, in OpenAPI 3.1: data, which tests hold against the code and the wire."""

from __future__ import annotations

from fieldagent.http.message import Request, Response
from fieldagent.http.routes import Route
from fieldagent.system.data_files import read_data


def route(name: str) -> Route:
    """`GET /openapi.json` of the API `local` or `hub`; read when it is asked for."""

    async def describe(request: Request) -> Response:
        return Response(200, read_data(__name__, f"{name}.json"))

    return Route("GET", "/openapi.json", describe)
