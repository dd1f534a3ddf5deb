"""The kit's page. Pages of other sites cannot run or read the page, because `http.guard` refuses
requests from other origins.
"""

from __future__ import annotations

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
