"""The available kinds of trackers. A new kind is a module beside this one, and an entry here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from fieldagent.hub.tracker.contract import TrackerKind
from fieldagent.system.named_object import named_object

KINDS = {name: f"fieldagent.hub.tracker.{name}:KIND" for name in ("osmand", "traccar", "owntracks")}


@cache
def tracker_kinds() -> Mapping[str, TrackerKind]:
    """Return all kinds of trackers by name."""
    return {name: named_object(place, TrackerKind) for name, place in KINDS.items()}
