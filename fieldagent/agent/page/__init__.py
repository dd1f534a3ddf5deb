"""The kit's page: files for a browser, served as they are; all that they show comes from the API.

No page of another site can run it, frame it or read it: `http.guard` refuses who comes from
elsewhere, and the policy lets nothing in that is not a file of this folder.
"""

from __future__ import annotations

from fieldagent.http.message import Request, Response
from fieldagent.http.page_file import page_file
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route

NAMES = (
    "page.css",
    "page.js",
    "agent.js",
    "conversation.js",
    "icon.svg",
    "links.js",
    "map.js",
    "send.js",
    "sos.js",
    "text.js",
)
LIBRARY = {"leaflet.css": "data/leaflet.css", "leaflet.js": "data/leaflet.js"}
"""What the map is drawn with, by the name of its file in the package that holds it."""


def routes() -> list[Route]:
    """`GET /`, and beneath `/page/` what it loads."""
    return [Route("GET", "/", _index), Route("GET", "/page/{name}", _file)]


async def _index(request: Request) -> Response:
    return page_file(request, __name__, "index.html")


async def _file(request: Request, name: str) -> Response:
    if name in LIBRARY:
        return page_file(request, "xstatic.pkg.leaflet", LIBRARY[name])
    if name not in NAMES:
        raise Problem(404, detail=f"the page has no file {name[:40]!r}")
    return page_file(request, __name__, name)
