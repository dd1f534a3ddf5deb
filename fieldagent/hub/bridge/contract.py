"""A bridge, as the hub sees one: it works at somebody else's server, where a team looks already,
tells there what is here, and brings what people there say.

A bridge is one module or folder with a `BridgeKind`, named in `known.BRIDGES`. What it brings from
there goes over what is paid for only by an allow list and a budget of its own, and nothing that a
bridge has brought goes out by one again. What becomes of each kind of item is in docs/bridges.md.
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
