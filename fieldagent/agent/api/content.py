"""Describes the content of a Package for people."""

from __future__ import annotations

from typing import Any

from fieldagent.package.package import (
    CheckIn,
    CommandAnswer,
    IncidentUpdate,
    Item,
    Location,
    Message,
    Package,
    Parcel,
    ToHub,
    Waypoint,
)
from fieldagent.package.payload import describe_incident_update
from fieldagent.package.writing import format_minutes, get_kind

TEXT_MAX = 500
"""Maximum number of characters of a text in a list. `GET /api/package/{id}` shows the whole
text."""
DAMAGED_CONTENT: dict[str, Any] = {
    "kind": "damaged",
    "sos": False,
    "priority": None,
    "text": "damaged on the disk: post it again",
    "position": None,
    "to": None,
    "from": None,
    "receipt": None,
    "incident": None,
}
"""Content of a Package that can no longer be read."""


def describe_content(package: Package, maximum: int | None = None) -> dict[str, Any]:
    """Return the content of a Package in the API's form, with at most `maximum` characters of its
    text (None: no limit).
    """
    text = _find_text(package.item)
    item = package.item if isinstance(package.item, Location | Waypoint) else None
    return {
        "kind": get_kind(package.item),
        "sos": package.sos,
        "priority": package.priority,
        "text": text
        if text is None or maximum is None or len(text) <= maximum
        else text[:maximum] + "…",
        "position": None if item is None else [item.latitude, item.longitude],
        "to": package.to,
        "from": package.author,
        "receipt": "read" if package.wants_receipt else None,
        "incident": _describe_incident_update(package.item),
    }


def _describe_incident_update(item: Item | ToHub) -> dict[str, str | None] | None:
    """Return the parts of an incident update, so that a page can show it in the reader's language.
    Return None for other items.
    """
    if not isinstance(item, IncidentUpdate):
        return None
    return {"state": item.state.value, "by": item.by or None, "text": item.text or None}


def _find_text(item: Item | ToHub) -> str | None:
    if isinstance(item, Message):
        return item.content
    if isinstance(item, Waypoint):
        return item.name if item.notes is None else f"{item.name}: {item.notes}"
    if isinstance(item, IncidentUpdate):
        return describe_incident_update(item)
    if isinstance(item, Parcel):
        return f"from the hub for station {item.station}" if item.station else "for the hub"
    if isinstance(item, CheckIn):
        return (
            "done" if item.within_s is None else f"check-in every {format_minutes(item.within_s)}"
        )
    if isinstance(item, CommandAnswer):
        return f"to command {item.number}: {item.outcome.name.lower()}"
    return None
