"""The kit's page. No page of another site can run it or read it: `http.guard` refuses who comes
from elsewhere."""

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


def routes() -> list[Route]:
    """Return `GET /` and `GET /track`, beneath `/page/` what they load, and what keeps that."""
    return [
        *files.routes(("/", "/track"), "/page", __name__, NAMES),
        files.alone("/worker.js", __name__, "worker.js"),
    ]
