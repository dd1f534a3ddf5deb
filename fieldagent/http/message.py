"""Requests and responses, as handlers see them: complete, decoded and free of connections."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from fieldagent.system.lazy_named_tuple import NamedTuple

if TYPE_CHECKING:
    import trio


class Request(NamedTuple):
    """One request whose framing has been checked.

    Guards and judges see it before the body has been read: there `body` is empty.
    """

    method: str
    path: str
    """As sent, still percent-encoded; `routes` decodes it segment by segment."""
    query: tuple[tuple[str, str], ...]
    """Decoded, in order, names repeated as sent."""
    headers: Mapping[str, str]
    """Lower-case names; lines of one name are joined with commas (RFC 9110 5.3)."""
    body: bytes = b""
    peer: str = ""
    """The address at the other end of the connection; empty where that has none."""


class Response(NamedTuple):
    """What a handler answers. The server adds length, date and connection headers."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    """Sent with a body or a stream only."""
    headers: tuple[tuple[str, str], ...] = ()
    stream: Callable[[], AsyncIterator[bytes]] | None = None
    """Instead of `body`: pieces sent as they come, until it ends, the peer leaves or the server
    stops. It is closed then, if it has an `aclose`. A generator here must not yield from within a
    nursery or cancel scope (trio's rule); a memory channel fed by a task elsewhere may."""
    upgrade: Callable[[trio.abc.Stream], Awaitable[None]] | None = None
    """With status 101, and `Upgrade` among the headers: gets the connection from then on, until it
    returns. It is cancelled when the server stops, and never evicted."""


FORM = "application/x-www-form-urlencoded"

Handler = Callable[[Request], Awaitable[Response]]
Guard = Callable[[Request], None]
"""Looks at a request before its body is read, and raises Problem to refuse it."""


class Admission(NamedTuple):
    """Who answers a request that was let in, and what body it may have."""

    handler: Handler
    body: int = 1_048_576
    """Bytes at most."""
    takes: tuple[str, ...] = ()
    """Media types that the body may be of, besides JSON."""
    caller: Any = None
    """Who calls, where the route's judge has found that out."""
    place: str = ""
    """The path as a log may hold it: the route's pattern."""


Judge = Callable[[Request], Awaitable[Admission]]
"""Lets a request in by its head, or raises Problem: the body of a refused one is not read."""


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def json_response(
    value: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    """Compact JSON and a newline. A lone surrogate, which UTF-8 lacks, becomes a question mark."""
    text = _encode(value)
    return Response(status, text.encode("utf-8", "replace") + b"\n", headers=headers)
