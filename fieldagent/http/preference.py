"""The Prefer header (RFC 7240): the maximum time that a caller will wait."""

from __future__ import annotations

import re
from collections.abc import Mapping

_WAIT = re.compile(r'wait\s*=\s*(?:([0-9]{1,9})|"([0-9]{1,9})")\s*(?:;.*)?', re.IGNORECASE)
_PREFERENCE = re.compile(r'(?:[^",]|"[^"]*(?:"|$))+')
"""Text between commas outside of quotes."""


def preferred_wait(headers: Mapping[str, str]) -> int | None:
    """Return the seconds that the caller will wait for an answer (section 4.3), or None.

    The first of several counts, and unreadable values are ignored (section 2).
    """
    for preference in _PREFERENCE.findall(headers.get("prefer", "")):
        if match := _WAIT.fullmatch(preference.strip()):
            return int(match[1] or match[2])
    return None
