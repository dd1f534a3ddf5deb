"""Header fields: the cookie of a signed-in user (RFC 6265), dates in English in any locale (RFC
9110 5.6.7) and delays (10.2.3), the Idempotency-Key (draft-ietf-httpapi-idempotency-key-header-07),
and the best language for a user (RFC 9110 12.5.4).

Scripts cannot read the cookie, and other sites cannot use it. `email.utils` is not used, because
its import takes 3 ms.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from fieldagent.http.message import Request
from fieldagent.http.problem import Problem


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


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_FIXED_FORM = re.compile(
    r"[A-Z][a-z]{2}, (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT", re.A
)


@lru_cache(maxsize=2)
def format_date(second: int) -> bytes:
    """Return a Unix time in whole seconds as a date (IMF-fixdate)."""
    now = time.gmtime(second)
    day, month = _DAYS[now.tm_wday], _MONTHS[now.tm_mon - 1]
    return time.strftime(f"{day}, %d {month} %Y %H:%M:%S GMT", now).encode("ascii")


def parse_date(text: str) -> float | None:
    """Return a date as Unix time, or None if it is not an IMF-fixdate, the only form that senders
    may use.
    """
    match = _FIXED_FORM.fullmatch(text)
    if match is None or match[2] not in _MONTHS:
        return None
    day, month, year = int(match[1]), _MONTHS.index(match[2]) + 1, int(match[3])
    clock = hour, minute, second = int(match[4]), int(match[5]), int(match[6])
    if not 1 <= day <= 31 or not year >= 1970 or clock > (23, 59, 60):
        return None
    # Count a leap second as the next second, as `calendar.timegm` does. Do not import `calendar`,
    # which takes 0.1 MB.
    midnight = datetime(year, month, 1, tzinfo=UTC).timestamp() + (day - 1) * 86_400
    return midnight + hour * 3600 + minute * 60 + second


def parse_delay(text: str) -> float | None:
    """Return the seconds of a `Retry-After`, or None if it is not a number of seconds in digits."""
    return float(text[:9]) if text.isascii() and text.isdigit() else None


_KEY = re.compile(r'"([\x20\x21\x23-\x5b\x5d-\x7e]{1,255})"|([\x21\x23-\x7e][\x20-\x7e]{0,254})')


def read_idempotency_key(headers: Mapping[str, str]) -> str | None:
    """Return the key in the header, with or without quotes, or None if there is no header. Raises
    Problem 400 if the header is invalid.
    """
    value = headers.get("idempotency-key")
    if value is None:
        return None
    match = _KEY.fullmatch(value)
    if match is None:
        raise Problem(400, detail="Idempotency-Key must be 1 to 255 printable ASCII characters")
    return match[1] or match[2]


def choose_language(accept_header: str, available: Sequence[str]) -> str:
    """Return the language of `available`, such as "de", with the highest weight in an
    Accept-Language header. If several languages have the same weight, the first one in the header
    is chosen. If none matches, return the first of `available`.

    A range such as "de-CH" selects "de". An unreadable weight is treated as 0.
    """
    best, best_weight = available[0], 0.0
    for each in accept_header.split(","):
        name, _, parameter = each.partition(";")
        language, weight = name.strip().lower().partition("-")[0], _read_weight(parameter)
        if language in available and weight > best_weight:
            best, best_weight = language, weight
    return best


def _read_weight(parameter: str) -> float:
    """Return the weight in a parameter such as `q=0.7`, or 1 if it is missing."""
    name, _, value = parameter.strip().partition("=")
    if not name:
        return 1.0
    try:
        weight = float(value)
    except ValueError:
        return 0.0
    return weight if name.strip().lower() == "q" and 0.0 <= weight <= 1.0 else 0.0
