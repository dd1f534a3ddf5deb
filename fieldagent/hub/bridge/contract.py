"""Interface of a bridge, which connects a workspace to a third-party server that a team uses.

A bridge is one module or folder with a `BridgeKind`, which `Extension.bridges` names. A bridge
publishes the workspace's items at the server and processes items from the server. An item from a
bridge uses paid channels only if its sender is in the bridge's allow list and the bridge's budget
is sufficient. A bridge does not publish items that came from a bridge. docs/how-to/tak.md contains
the route of each kind of item. docs/how-to/add-a-bridge.md describes how to add a bridge.
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
    """Function of the hub that counts events that arrived."""

    def __call__(self, result: ItemResult, by: int = 1) -> None: ...


class BridgeHost(NamedTuple):
    """Services that the hub offers to a bridge."""

    store: Store
    own: Own
    clock: Callable[[], float]
    """Returns Unix time."""
    note_events: NoteEvents
    note_link: Callable[[bool], None]
    """Called at each change of the connection, with True if the bridge is connected to its
    server."""


@dataclass(frozen=True, slots=True)
class BridgeKind:
    """Description of a kind of bridge, for the settings and the hub."""

    name: str
    title: str
    """Name that people see, and name in the log."""
    keys: tuple[Key, ...]
    """Keys with which the hub's settings file configures the bridge."""
    work: Callable[[BridgeHost], Callable[[], Awaitable[None]] | None]
    """Returns a function that runs the bridge until it is cancelled, or None if the bridge is not
    configured."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Example values in the first settings file, for settings without a default. A secret has no
    example."""
    together: tuple[tuple[str, str], ...] = ()
    """Settings that must be set together."""
    faults: Callable[[Own], list[str]] = lambda own: []
    """Returns other errors in the settings. Each is a sentence that contains the fix."""
