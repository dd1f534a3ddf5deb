"""Reports whether the hub could pass on a Package of `send` to its addressee."""

from __future__ import annotations

import time
from typing import Any

from fieldagent.kit.local_http import call

REFUSAL_WAIT_S = 3.0
"""Seconds after the status Delivered during which the hub may report that it does not know the
name."""


def find_unreached_reason(port: int, package: dict[str, Any]) -> str:
    """Wait up to `REFUSAL_WAIT_S` for the hub's reason for not passing on a Package. Return the
    reason, or "". Raises CallFailed if the agent does not respond.
    """
    end = time.monotonic() + REFUSAL_WAIT_S
    while True:
        steps = call(port, "GET", f"/api/package/{package['id']}").body.get("reached", [])
        reasons = [each["text"] for each in steps if each["stage"] == "nobody"]
        if reasons or time.monotonic() > end or any(each["stage"] == "stored" for each in steps):
            return str(reasons[-1]) if reasons else ""
        time.sleep(0.2)
