"""Server-sent events (the HTML standard, section 9.2): encodes events, and parses stream
requests.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence

from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.system.lazy_named_tuple import NamedTuple

KEEP_ALIVE_INTERVAL_S = 15.0
"""Seconds without an event after which a comment is sent. It shows that the stream is alive."""
LISTENING_COMMENT = b": listening\n\n"
ALIVE_COMMENT = b": alive\n\n"
ALIVE_EVENT = b"event: alive\ndata: {}\n\n"
"""Keepalive as an event without an id, because a browser's script cannot see comments."""
QUERY = ("topics", "alive")
NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", re.ASCII)


class StreamRequest(NamedTuple):
    """Parameters of a request for a stream of events: the wanted topics, the start, and the
    keepalive.
    """

    topics: frozenset[str]
    last: str = ""
    """Id of the last received event, or empty."""
    quiet_max_s: float = KEEP_ALIVE_INTERVAL_S
    """Maximum number of seconds without an event until a keepalive is sent."""
    alive: bytes = ALIVE_COMMENT
    """Bytes of the keepalive."""


def encode_event(id_: int | str, topic: str, text: str) -> bytes:
    """Return an event in the format of the stream. `id_` is the id that a client sends after a
    reconnect. `text` must be one line.
    """
    return f"id: {id_}\nevent: {topic}\ndata: {text}\n\n".encode()


def parse_stream_request(request: Request, known_topics: Sequence[str]) -> StreamRequest:
    """Parse the query parameters `topics`, which contains some of `known_topics`, and `alive`, the
    seconds from 1 to 60.

    Raises Problem 400 if the query is invalid.
    """
    query = dict(request.query)
    topics = query.get("topics", ",".join(known_topics)).split(",")
    if not set(topics) <= set(known_topics):
        raise Problem(400, f"?topics= holds some of {','.join(known_topics)}")
    last = request.headers.get("last-event-id", "")
    if "alive" not in query:
        return StreamRequest(frozenset(topics), last)
    quiet = float(query["alive"]) if NUMBER.fullmatch(query["alive"]) else 0.0
    if not 1 <= quiet <= 60:
        raise Problem(400, "?alive= must be 1 to 60 seconds")
    return StreamRequest(frozenset(topics), last, quiet, ALIVE_EVENT)


def make_stream_response(stream: Callable[[], AsyncIterator[bytes]]) -> Response:
    """Return the response 200 whose body is the stream, which must not be cached."""
    return Response(
        200,
        content_type="text/event-stream",
        headers=(("Cache-Control", "no-store"),),
        stream=stream,
    )
