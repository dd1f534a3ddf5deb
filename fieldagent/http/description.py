"""Description of an API in OpenAPI 3.1, as data beside its code. Tests compare both."""

from __future__ import annotations

from fieldagent.http.message import Request, Response
from fieldagent.http.routes import Route
from fieldagent.system.data_files import read_data


def described_in(package: str) -> Route:
    """Return the route `GET /openapi.json` of the API in that package. The file is read at each
    request.
    """

    async def describe(request: Request) -> Response:
        return Response(200, read_data(package, "openapi.json"))

    return Route("GET", "/openapi.json", describe)
