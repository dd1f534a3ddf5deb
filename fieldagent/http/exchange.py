"""One HTTP exchange without trio, whose import takes longer than most commands."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPConnection, HTTPMessage

from fieldagent.system.lazy_named_tuple import NamedTuple


class RawAnswer(NamedTuple):
    status: int
    headers: HTTPMessage
    body: bytes


def exchange(
    connection: HTTPConnection,
    method: str,
    path: str,
    body: bytes | None,
    headers: Mapping[str, str],
) -> RawAnswer:
    """Send a request, read the response, and close the connection. Raises OSError or HTTPException
    if there is no response.
    """
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return RawAnswer(response.status, response.headers, response.read())
    finally:
        connection.close()
