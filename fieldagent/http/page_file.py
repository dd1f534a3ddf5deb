"""Files of a page, served as they are: what they show comes from the API.

No page of another site can frame it, and the policy lets nothing in that is not of its own origin.
"""

from __future__ import annotations

import gzip
import hashlib

from fieldagent.http.message import Request, Response
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


def page_file(request: Request, package: str, name: str) -> Response:
    """One of the files beside the sources of that package."""
    content = read_data(package, name)
    packed = "gzip" in request.headers.get("accept-encoding", "")
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}{"-gzip" if packed else ""}"'
    headers = (
        ("Vary", "Accept-Encoding"),
        ("Content-Security-Policy", POLICY),
        ("ETag", tag),
        ("Cache-Control", "no-cache"),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
    )
    known = request.headers.get("if-none-match", "").replace("W/", "")
    if tag in (each.strip() for each in known.split(",")):
        return Response(304, headers=headers)
    if packed:
        content = gzip.compress(content, 6, mtime=0)
    encoded = (("Content-Encoding", "gzip"),) if packed else ()
    return Response(200, content, _TYPES[name.rpartition(".")[2]], (*encoded, *headers))
