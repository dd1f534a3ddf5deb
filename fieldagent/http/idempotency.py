"""The Idempotency-Key header, draft-ietf-httpapi-idempotency-key-header-07."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fieldagent.http.problem import Problem

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
