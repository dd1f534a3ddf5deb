"""The kit's page. Pages of other sites cannot run or read the page, because `http.guard` refuses
requests from other origins.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route
from fieldagent.page import files

NAMES = (
    *files.CATALOGUES,
    "page.css",
    "page.js",
    "agent.js",
    "conversation.js",
    "events.js",
    "icon.svg",
    "icon-180.png",
    "handhelds.js",
    "links.js",
    "kit.webmanifest",
    "people.js",
    "send.js",
    "sos.js",
    "start.js",
    "track.js",
    "worker.js",
    "world.json",
)

EARLY_TEXTS = ("Loading. The button works when it is red.", "connecting to the agent …")
"""Texts that the page shows while its scripts load."""


def make_routes() -> list[Route]:
    """Return `GET /` and `GET /track`, the files below `/page/`, and the service worker that caches
    these files.
    """
    return [
        *files.make_page_routes(
            ("/", "/track"), "/page", __name__, NAMES, static_texts=EARLY_TEXTS
        ),
        files.make_file_route("/worker.js", __name__, "worker.js"),
    ]


def make_canned_routes(messages: Sequence[str]) -> list[Route]:
    """Return the route that the page uses for canned messages."""
    return [Route("GET", "/api/messages/canned", partial(_list_canned, messages))]


async def _list_canned(messages: Sequence[str], request: Request) -> Response:
    refuse_others(request, ())
    return make_json_response({"messages": list(messages)})
