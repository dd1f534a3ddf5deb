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
    "send.js",
    "sos.js",
    "text.js",
)


def routes() -> list[Route]:
    """`GET /`, and beneath `/page/` what it loads."""
    return [Route("GET", "/", _index), Route("GET", "/page/{name}", _file)]


async def _index(request: Request) -> Response:
    return page_file(request, __name__, "index.html")


async def _file(request: Request, name: str) -> Response:
    if name not in NAMES:
        raise Problem(404, detail=f"the page has no file {name[:40]!r}")
    return page_file(request, __name__, name)
