"""The kit's page: files for a browser, served as they are; all that they show comes from the API.

No page of another site can run it, frame it or read it: `http.guard` refuses who comes from
elsewhere, and the policy lets nothing in that is not a file of this folder.
"""

from __future__ import annotations

import hashlib

from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.system.data_files import read_data

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
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
    return _answer(request, "index.html")


async def _file(request: Request, name: str) -> Response:
    if name not in NAMES:
        raise Problem(404, detail=f"the page has no file {name[:40]!r}")
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    content = read_data(__name__, name)
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = (
        ("Content-Security-Policy", POLICY),
        ("ETag", tag),
        ("Cache-Control", "no-cache"),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
    )
    known = request.headers.get("if-none-match", "").replace("W/", "")
    if tag in (each.strip() for each in known.split(",")):
        return Response(304, headers=headers)
    return Response(200, content, _TYPES[name.rpartition(".")[2]], headers)
