"""Checks that refuse a request before a handler runs, by raising a `Problem`. Pure.

The first half checks the raw bytes before h11 gets them. These checks are as strict as RFC 9112
allows, so that no intermediary can read the length of a message differently. The second half
protects an API without authentication from web pages in the user's browser.
"""

from __future__ import annotations

import re

from fieldagent.http.limits import Limits
from fieldagent.http.message import Admission, Request
from fieldagent.http.problem import Problem, make_too_large

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"})

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]")
_REQUEST_LINE = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])\r\n"
)
_BARE_LF = re.compile(rb"(?<!\r)\n")
_FOLD = re.compile(rb"\r\n[ \t]")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters that no line of a head may contain (RFC 9110 5.5): all control characters except the
tab and the line ends."""
_BARE_CR = re.compile(rb"\r(?!\n)")
_FRAMING = re.compile(rb"\r\n(content-length|transfer-encoding)[ \t]*:([^\r]*)", re.IGNORECASE)
_ABSOLUTE = re.compile(rb"https?://", re.IGNORECASE)
_JSON = re.compile(r'application/json[ \t]*(;[ \t]*charset="?utf-8"?[ \t]*)?', re.IGNORECASE)


def screen_partial_head(data: bytearray, scanned_bytes: int, limits: Limits) -> None:
    """Raise Problem 400, 414 or 431 as soon as an incomplete head cannot become valid.

    `scanned_bytes` is the number of bytes that were already checked.
    """
    if not _TOKEN.match(data):
        raise Problem(400, "this is not HTTP: the port speaks plain HTTP/1.1, without TLS")
    if _BARE_LF.search(data, max(0, scanned_bytes - 1)):
        raise Problem(400, "a line of the head ends in LF alone (RFC 9112 2.2)")
    if len(data) > limits.target + 32 and data.find(b"\r\n", 0, limits.target + 32) < 0:
        raise Problem(414, f"the request target is longer than {limits.target} bytes")
    if len(data) > limits.head:
        raise Problem(431, f"the head is larger than {limits.head} bytes")


def screen_head(head: bytes, limits: Limits) -> None:
    """Check a complete raw head, including the empty line. Raise Problem for a head that h11 would
    wrongly accept.
    """
    if _BARE_LF.search(head):
        raise Problem(400, "a line of the head ends in LF alone (RFC 9112 2.2)")
    if _FOLD.search(head):
        raise Problem(400, "a header line is folded (RFC 9112 5.2)")
    if _CONTROL.search(head) or _BARE_CR.search(head):
        raise Problem(400, "a line of the head holds a control character (RFC 9110 5.5)")
    line = _REQUEST_LINE.match(head)
    if line is None:
        raise Problem(400, "the request line is malformed: use METHOD /path HTTP/1.1 (RFC 9112 3)")
    method, target, major, minor = line.groups()
    if len(target) > limits.target:
        raise Problem(414, f"the request target is longer than {limits.target} bytes")
    if len(head) > limits.head:
        raise Problem(431, f"the head is larger than {limits.head} bytes")
    if major != b"1" or minor not in b"01":
        raise Problem(505, "this server speaks HTTP/1.1 and HTTP/1.0")
    if method.decode() not in METHODS:
        raise Problem(501, f"the method {method.decode()} is not known here")
    _screen_target(method, target)
    _screen_framing(head, minor)


def _screen_target(method: bytes, target: bytes) -> None:
    if target.startswith(b"/") or _ABSOLUTE.match(target):
        if b"#" in target:
            raise Problem(400, "the request target holds a fragment (RFC 9112 3.2)")
    elif target != b"*" or method != b"OPTIONS":
        raise Problem(400, "the request target must begin with / (RFC 9112 3.2.1)")


def _screen_framing(head: bytes, minor: bytes) -> None:
    """Check the framing (RFC 9112 6.1 and 6.3): only one length, in only one form."""
    lines = [(name.lower(), value) for name, value in _FRAMING.findall(head)]
    if not lines:
        return
    if any(name == b"transfer-encoding" for name, _ in lines):
        if minor == b"0":
            raise Problem(400, "HTTP/1.0 does not allow Transfer-Encoding (RFC 9112 6.1)")
        if any(name == b"content-length" for name, _ in lines):
            raise Problem(
                400, "the request has both Content-Length and Transfer-Encoding (RFC 9112 6.1)"
            )
    elif len(lines) > 1 or b"," in lines[0][1]:
        raise Problem(400, "the request has more than one Content-Length (RFC 9112 6.3)")


def check_expectation(request: Request) -> None:
    """Check the header `Expect`. Raises Problem 417 if the expectation is not 100-continue (RFC
    9110 10.1.1).
    """
    expect = request.headers.get("expect", "")
    if expect and expect.lower() != "100-continue":
        raise Problem(417, f"Expect: {expect} is not supported: use 100-continue")


def check_content(request: Request, admission: Admission) -> None:
    """Raise Problem 413 if the body is too large for the route, or Problem 415 if the route does
    not accept the body's encoding or media type.
    """
    headers = request.headers
    if int(headers.get("content-length", "0")) > admission.body:
        raise make_too_large(admission.body)
    coding = headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise Problem(
            415,
            f"Content-Encoding {coding} is not supported",
            headers=(("Accept-Encoding", "identity"),),
        )
    content_type = headers.get("content-type", "")
    kind = content_type.partition(";")[0].rstrip(" \t").lower()
    if not _JSON.fullmatch(content_type) and kind not in admission.media_types:
        taken_types = ("application/json", *filter(None, admission.media_types))
        detail = f"send the body with Content-Type: {' or '.join(taken_types)}"
        raise Problem(415, detail, headers=(("Accept", ", ".join(taken_types)),))


def get_required_body(request: Request) -> bytes:
    """Return the body of a request that needs a body. Raises Problem 411 if no body was announced,
    400 if the body is empty.
    """
    if not request.headers.keys() & {"content-length", "transfer-encoding"}:
        raise Problem(411, "send a body, with Content-Length or chunked")
    if not request.body:
        raise Problem(400, "the body is empty: send a JSON object")
    return request.body


_AUTHORITY = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(?::([0-9]{0,5}))?")
_DEFAULT_PORT = 80
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%!$&'()*+;=-]+)(:[0-9]{0,5})?")
"""Host without user information, and its port (RFC 3986 3.2). A comma is not accepted although the
RFC allows it, because it could separate two hosts."""


def check_host(request: Request) -> None:
    """Refuse a request with an ambiguous Host header (RFC 9112 3.2)."""
    host = request.headers.get("host")
    if host is not None and not _HOST.fullmatch(host):
        raise Problem(400, "Host must be a name or an address, with an optional port")


def check_loopback_caller(request: Request) -> None:
    """Refuse requests to a loopback port that a web page, DNS rebinding or a proxy could have
    caused.

    With DNS rebinding, a browser may send neither Origin nor Sec-Fetch-Site, so the Host header is
    the main defence. It must name the loopback, which a page of another site cannot achieve. Any
    port is accepted in it, because behind `ssh -L` the browser uses another port. A page from
    another port is refused because its Origin differs.
    """
    headers = request.headers
    host = _parse_loopback_authority(headers.get("host", ""))
    if host is None:
        raise Problem(403, "Host must be localhost, 127.0.0.1 or [::1], with an optional port")
    origin = headers.get("origin")
    if origin is not None and _parse_loopback_origin(origin) != host:
        raise Problem(403, f"Origin {origin} is not this server's own")
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Problem(403, "a page of another site may not call this server (Sec-Fetch-Site)")
    for name in headers:
        if name == "forwarded" or name.startswith("x-forwarded-"):
            raise Problem(
                403,
                f"{name} shows that a proxy sent this request, but this server is only for "
                f"programs on its own machine",
            )


def check_network_caller(request: Request) -> None:
    """Refuse requests that a page of another site or port has caused, at a server with sign-in. The
    cookie's SameSite=Strict does not cover ports (RFC 6265bis 5.2).
    """
    check_host(request)
    headers = request.headers
    origin = headers.get("origin")
    if origin is not None and origin != f"https://{headers.get('host', '')}":
        raise Problem(403, f"Origin {origin} is not this server's own")
    follows_link = request.method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not follows_link:
        raise Problem(403, "a page of another site may not call this server (Sec-Fetch-Site)")


def _parse_loopback_origin(origin: str) -> tuple[str, int] | None:
    """Return the name and port of a loopback origin, or None. An origin has a scheme (RFC 6454
    6.2), so `null` and other values without a scheme are not loopback.
    """
    scheme, _, authority = origin.partition("://")
    return _parse_loopback_authority(authority) if scheme == "http" else None


def _parse_loopback_authority(authority: str) -> tuple[str, int] | None:
    """Return the name and port of a loopback authority, or None. The whole text must match, because
    `127.evil.com` also begins like a loopback address.
    """
    match = _AUTHORITY.fullmatch(authority.lower())
    return (match[1], int(match[2] or _DEFAULT_PORT)) if match else None
