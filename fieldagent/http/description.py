"""Description of an API in OpenAPI 3.1, as data beside its code. Tests compare both."""

from __future__ import annotations

import json
from typing import Any

from fieldagent.http.message import Request, Response
from fieldagent.http.routes import Route
from fieldagent.system.data_files import read_data

NAME = "openapi.json"


def described_in(package: str, *more: str) -> Route:
    """Return the route `GET /openapi.json` of the API in that package, with the routes of `more`
    packages. The files are read at each request.
    """

    async def describe(request: Request) -> Response:
        return Response(200, description(package, *more))

    return Route("GET", "/openapi.json", describe)


def description(package: str, *more: str) -> bytes:
    """Return the `openapi.json` of a package as JSON. Objects of the same file of `more` packages
    are merged into its objects, and lists are added to its lists.
    """
    whole = read_data(package, NAME)
    if not more:
        return whole
    document = json.loads(whole)
    for each in more:
        document = _merged(document, json.loads(read_data(each, NAME)))
    return json.dumps(document, ensure_ascii=False, indent=1).encode()


def _merged(base: Any, other: Any) -> Any:
    if isinstance(base, dict) and isinstance(other, dict):
        both = {name: _merged(base[name], other[name]) for name in base.keys() & other.keys()}
        return {**base, **other, **both}
    if isinstance(base, list) and isinstance(other, list):
        return [*base, *other]
    return other
