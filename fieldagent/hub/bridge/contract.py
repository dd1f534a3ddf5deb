"""Contract of a bridge, which connects a workspace to a third party's server that a team uses.

A bridge is one module or folder with a `BridgeKind`, named in `Extension.bridges`. A bridge
publishes the workspace's items at that server and takes in items from it. An item from a bridge
uses paid channels only if its sender is in the bridge's allow list and its budget allows it. No
bridge sends out an item that a bridge took in. docs/how-to/tak.md contains the route of each kind
of item, and docs/how-to/add-a-bridge.md the steps to a new bridge.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Protocol, TypeAlias

from fieldagent.hub.contract import ItemResult
from fieldagent.hub.store.contract import Store
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import Key

Own: TypeAlias = "Mapping[str, Any]"
"""Settings of the bridges by name, each in the form that its `Key` reads."""


class NoteEvents(Protocol):
    """Counter in the hub for events that arrived."""

    def __call__(self, result: ItemResult, by: int = 1) -> None: ...


class BridgeHost(NamedTuple):
    """Services of the hub for a bridge."""

    store: Store
    own: Own
    clock: Callable[[], float]
    """Returns Unix time."""
    note_events: NoteEvents
    note_link: Callable[[bool], None]
    """Called at each change: True if the bridge is connected to its server."""


@dataclass(frozen=True, slots=True)
class BridgeKind:
    """Description of a kind of bridge, for the settings and the hub."""

    name: str
    title: str
    """Name for people and the log."""
    keys: tuple[Key, ...]
    """Settings of the bridge."""
    work: Callable[[BridgeHost], Callable[[], Awaitable[None]] | None]
    """Returns the function that works at the server until cancelled; None if the bridge is not
    configured."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Examples for the first settings file, for settings without a default; none for a secret."""
    together: tuple[tuple[str, str], ...] = ()
    """Settings that must be set together."""
    faults: Callable[[Own], list[str]] = lambda own: []
    """Returns other faults of the settings, each as a sentence with the fix."""
