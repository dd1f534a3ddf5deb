"""Which bridges there are. A new one is a module or folder beside this one, and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from fieldagent.hub.bridge.contract import BridgeKind
from fieldagent.system.named_object import named_object

BRIDGES = {
    "tak": "fieldagent.hub.bridge.tak.kind:KIND",
    "mqtt": "fieldagent.hub.bridge.mqtt.kind:KIND",
    "phones": "fieldagent.hub.bridge.tak_server.kind:KIND",
}


@cache
def bridges() -> Mapping[str, BridgeKind]:
    """Return all there are, by name."""
    return {name: named_object(place, BridgeKind) for name, place in BRIDGES.items()}
