"""Cookie of a signed-in user (RFC 6265). Scripts cannot read the cookie, and other sites cannot use
it.
"""

from __future__ import annotations

from fieldagent.http.message import Request


def read_cookie(request: Request, name: str) -> str | None:
    """Return the raw value of the first cookie with this name (4.2), or None. Other cookies are
    ignored, because other servers on the same host set cookies too. `http.cookies` is not used,
    because it takes quadratic time for backslashes.
    """
    # A value contains no comma (4.1.1), so a comma joins two lines of the header.
    for pair in request.headers.get("cookie", "").replace(",", ";").split(";"):
        key, _, value = pair.partition("=")
        if key.strip() == name:
            return value.strip()
    return None


def set_cookie(name: str, value: str, seconds: float, *, secure: bool) -> tuple[str, str]:
    """Return the header that sets the cookie for `seconds`, or deletes it if `seconds` is 0. If
    `secure`, the cookie is sent only over TLS.
    """
    attributes = "Secure; HttpOnly" if secure else "HttpOnly"
    return (
        "Set-Cookie",
        f"{name}={value}; Path=/; {attributes}; SameSite=Strict; Max-Age={seconds:.0f}",
    )
