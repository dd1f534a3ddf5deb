"""An API describes itself in OpenAPI 3.1: data beside its code; tests hold the two together."""

from __future__ import annotations

from fieldagent.http.message import Request, Response
from fieldagent.http.routes import Route
from fieldagent.system.data_files import read_data


def described_in(package: str) -> Route:
    """Return `GET /openapi.json` of the API in that package, which is read when it is asked for."""

    async def describe(request: Request) -> Response:
        return Response(200, read_data(package, "openapi.json"))

    return Route("GET", "/openapi.json", describe)
