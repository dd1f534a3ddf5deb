"""Requests and responses for handlers: complete, decoded and independent of connections."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from fieldagent.system.lazy_named_tuple import NamedTuple

if TYPE_CHECKING:
    import trio


class Request(NamedTuple):
    """One request with valid framing.

    Guards and judges get the request before its body has been read, with an empty `body`.
    """

    method: str
    path: str
    """Path as it was sent, percent-encoded. `routes` decodes it segment by segment."""
    query: tuple[tuple[str, str], ...]
    """Decoded query, in order, with repeated names."""
    headers: Mapping[str, str]
    """Headers with lower-case names. Lines of the same name are joined with commas (RFC
    9110 5.3)."""
    body: bytes = b""
    peer: str = ""
    """Address at the other end of the connection. Empty if there is no such address."""


class Response(NamedTuple):
    """Response of a handler. The server adds length, date and connection headers."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    """Content type. It is sent only with a body or a stream."""
    headers: tuple[tuple[str, str], ...] = ()
    stream: Callable[[], AsyncIterator[bytes]] | None = None
    """Function that returns a stream, which replaces `body`. The server sends the stream's parts as
    they arrive, until the stream ends, the peer leaves or the server stops. It then closes the
    stream if the stream has an `aclose`. A generator as the stream must not yield inside a nursery
    or cancel scope (trio's rule). A memory channel that another task fills may be used instead."""
    upgrade: Callable[[trio.abc.Stream], Awaitable[None]] | None = None
    """For status 101 with `Upgrade` among the headers: function that uses the connection until it
    returns. The function is cancelled when the server stops. The connection is never evicted."""


FORM = "application/x-www-form-urlencoded"

Handler = Callable[[Request], Awaitable[Response]]
Guard = Callable[[Request], None]
"""Function that checks a request before its body is read, and raises Problem to refuse it."""


class Admission(NamedTuple):
    """Handler of an admitted request, and the limits of the request's body."""

    handler: Handler
    body: int = 1_048_576
    """Maximum bytes of the body."""
    media_types: tuple[str, ...] = ()
    """Accepted media types of the body, besides JSON."""
    caller: Any = None
    """Caller, if the route's judge has identified one."""
    place: str = ""
    """Form of the path that a log may contain: the route's pattern."""


Judge = Callable[[Request], Awaitable[Admission]]
"""Function that admits a request by its head, or raises Problem. The body of a refused request is
not read."""


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def make_json_response(
    value: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    """Return compact JSON with a newline. A lone surrogate, which UTF-8 cannot encode, becomes a
    question mark.
    """
    text = _encode(value)
    return Response(status, text.encode("utf-8", "replace") + b"\n", headers=headers)
