"""HTTP dates (RFC 9110 5.6.7), in English in any locale, and delays (10.2.3).

`email.utils` is not used, because its import takes 3 ms.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from functools import lru_cache

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
    """Return a date as Unix time, or None if it does not have the form that senders must use
    today.
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
    """Return the seconds of a `Retry-After`, or None if it is not an integer."""
    return float(text[:9]) if text.isascii() and text.isdigit() else None
