"""Finds the kinds of bridges, which extensions add with `Extension.bridges`."""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.extensions import list_places
from fieldagent.hub.bridge.contract import BridgeKind
from fieldagent.system.extension import import_named_object


def get_bridges() -> Mapping[str, BridgeKind]:
    """Return the kinds of bridges that extensions add, by name."""
    return {
        name: import_named_object(place, BridgeKind)
        for name, place in list_places("bridges").items()
    }
