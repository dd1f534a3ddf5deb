"""The cookie of who has signed in (RFC 6265): no script sees it, and no other site makes a browser
send it."""

from __future__ import annotations

from fieldagent.http.message import Request


def cookie_of(request: Request, name: str) -> str | None:
    """Return the cookie's value as it came (4.2), the first where there are several. Whatever else
    stands in the header is passed over: other servers of the same host set cookies as they like.
    `http.cookies` takes quadratic time for backslashes."""
    # No value holds a comma (4.1.1); it stands between two lines of the header.
    for pair in request.headers.get("cookie", "").replace(",", ";").split(";"):
        key, _, value = pair.partition("=")
        if key.strip() == name:
            return value.strip()
    return None


def set_cookie(name: str, value: str, seconds: float, *, secure: bool) -> tuple[str, str]:
    """Return the header that sets the cookie for so many seconds; 0 takes it away. `secure`: sent
    by TLS alone."""
    how = "Secure; HttpOnly" if secure else "HttpOnly"
    return "Set-Cookie", f"{name}={value}; Path=/; {how}; SameSite=Strict; Max-Age={seconds:.0f}"
