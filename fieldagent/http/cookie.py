"""The cookie of who has signed in (RFC 6265): no script sees it, and no other site makes a browser
send it."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie

from fieldagent.http.message import Request


def cookie_of(request: Request, name: str) -> str | None:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return None if found is None else found.value


def set_cookie(name: str, value: str, seconds: float, *, secure: bool) -> tuple[str, str]:
    """The header that sets it for so long; 0 takes it away. `secure`: sent by TLS alone."""
    how = "Secure; HttpOnly" if secure else "HttpOnly"
    return "Set-Cookie", f"{name}={value}; Path=/; {how}; SameSite=Strict; Max-Age={seconds:.0f}"
