"""Checks the addressee of `send` before a Package leaves, and after the hub has answered."""

from __future__ import annotations

import re
import time
from typing import Any

from fieldagent.kit.local_http import call
from fieldagent.system.terminal import escaped

_ADDRESS = re.compile(r"\+[0-9]{6,15}|[^\s@]+@[^\s@]+")
_KINDS = ("user", "group", "device")
WORD_WITHIN = 3.0
"""Seconds after Delivered in which the hub may answer that it does not know the name."""


def fault_of(port: int, named: str | int | None) -> str:
    """Return the reason to refuse a name, with the nearest name, or "". Only a kit that has the
    hub's whole directory knows. Raises CallFailed."""
    if not isinstance(named, str) or _ADDRESS.fullmatch(named):
        return ""
    answer = call(port, "GET", "/api/people").body
    kind, colon, name = named.partition(":")
    if not colon or kind not in _KINDS:
        kind, name = "", named
    names = [each["name"] for each in answer["people"] if kind in ("", each["kind"])]
    folded = {each.casefold(): each for each in names}
    if not answer["complete"] or name.casefold() in folded:
        return ""
    import difflib  # here, so that a name that is typed well starts without it

    near = difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)
    hint = f"; nearest: {', '.join(folded[each] for each in near)}" if near else ""
    return (
        f"no such person: {escaped(repr(name))}{escaped(hint)}. Nothing was sent. See"
        " `fieldagent people`, or use a user's number"
    )


def unreached(port: int, package: dict[str, Any]) -> str:
    """Return the hub's reason for not passing a Package on, or "". Waits a moment for it. Raises
    CallFailed."""
    end = time.monotonic() + WORD_WITHIN
    while True:
        steps = call(port, "GET", f"/api/package/{package['id']}").body.get("reached", [])
        words = [each["text"] for each in steps if each["stage"] == "nobody"]
        if words or time.monotonic() > end or any(each["stage"] == "stored" for each in steps):
            return str(words[-1]) if words else ""
        time.sleep(0.2)
