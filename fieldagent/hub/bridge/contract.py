"""The contract of a bridge: it connects a workspace to a third party's server that a team uses.

A bridge is one module or folder with a `BridgeKind`, named in `Extension.bridges`. It publishes
items there and takes in items from there. An item from a bridge uses paid channels only if its
sender is in the bridge's allow list and its budget allows it. No bridge sends out an item that a
bridge took in. docs/bridges.md has the route of each kind of item.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from fieldagent.hub.store.contract import Store
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import Key

Own: TypeAlias = "Mapping[str, Any]"
"""Settings that the bridges bring, by name, each as its `Key` reads it."""


class Became(StrEnum):
    """What became of something that came from the server."""

    TAKEN = "taken"
    REPEATED = "repeated"
    """It was taken before."""
    ASKED = "asked"
    """It asked what something would cost, and nothing was sent."""
    TICK = "tick"
    """It confirms what went out."""
    OWN = "own"
    """A bridge has brought it there."""
    LIMITED = "limited"
    """More came than is taken."""
    REFUSED = "refused"
    """It cannot be used: nobody here is meant, or it has no words."""
    UNREADABLE = "unreadable"
    RETAINED = "retained"
    """The server keeps it for whoever comes: it is no news."""
    PASSED = "passed"
    """It went on to phones alone, at the hub's own server."""
    OTHER = "other"
    """Of a kind that nobody here wants, as a phone's position."""


class NoteEvents(Protocol):
    """The hub, which counts what came."""

    def __call__(self, became: Became, by: int = 1) -> None: ...


class BridgeHost(NamedTuple):
    """What the hub lends to a bridge."""

    store: Store
    own: Own
    clock: Callable[[], float]
    """Unix time."""
    note_events: NoteEvents
    note_link: Callable[[bool], None]
    """Told whether the bridge is with its server, at each change."""


@dataclass(frozen=True, slots=True)
class BridgeKind:
    """Describes one kind of bridge: all that settings and the hub ask."""

    name: str
    title: str
    """What people and the log call it."""
    keys: tuple[Key, ...]
    """Its settings."""
    work: Callable[[BridgeHost], Callable[[], Awaitable[None]] | None]
    """Returns what works at the server until it is cancelled; None where none is set."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Values for a first settings file, of settings without a default; none of a secret."""
    together: tuple[tuple[str, str], ...] = ()
    """Settings that mean nothing without each other."""
    faults: Callable[[Own], list[str]] = lambda own: []
    """What else is wrong with the settings, each in a sentence with what to do."""
