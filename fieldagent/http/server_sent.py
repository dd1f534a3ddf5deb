"""Server-sent events (the HTML standard, section 9.2): their look, and how they are asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem

KEEP_ALIVE = 15.0
"""Seconds of silence after which a comment shows that the stream lives."""
LISTENING = b": listening\n\n"
ALIVE = b": alive\n\n"


def event(id_: int | str, topic: str, text: str) -> bytes:
    """`text` is one line."""
    return f"id: {id_}\nevent: {topic}\ndata: {text}\n\n".encode()


def asked(request: Request, known: Sequence[str]) -> tuple[frozenset[str], str]:
    """Which topics; and the id of the last event that the listener has had, or nothing.

    Raises Problem 400.
    """
    topics = dict(request.query).get("topics", ",".join(known)).split(",")
    if not set(topics) <= set(known):
        raise Problem(400, f"?topics= holds some of {','.join(known)}")
    return frozenset(topics), request.headers.get("last-event-id", "")


def answer(stream: Callable[[], AsyncIterator[bytes]]) -> Response:
    return Response(
        200,
        content_type="text/event-stream",
        headers=(("Cache-Control", "no-store"),),
        stream=stream,
    )
