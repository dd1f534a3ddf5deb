"""Checks the addressee of `send` after the hub has answered."""

from __future__ import annotations

import time
from typing import Any

from fieldagent.kit.local_http import call

REFUSAL_WAIT_S = 3.0
"""Seconds after the status Delivered during which the hub may answer that it does not know the
name."""


def find_unreached_reason(port: int, package: dict[str, Any]) -> str:
    """Return the hub's reason for not passing a Package on, or "". Wait up to `REFUSAL_WAIT_S` for
    the reason. Raises CallFailed.
    """
    end = time.monotonic() + REFUSAL_WAIT_S
    while True:
        steps = call(port, "GET", f"/api/package/{package['id']}").body.get("reached", [])
        words = [each["text"] for each in steps if each["stage"] == "nobody"]
        if words or time.monotonic() > end or any(each["stage"] == "stored" for each in steps):
            return str(words[-1]) if words else ""
        time.sleep(0.2)
