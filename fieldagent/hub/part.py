"""The contract of a part that an extension adds to the hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fieldagent.extensions import places_of
from fieldagent.http.routes import Route
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.contract import Became
from fieldagent.hub.records.usage import Prices
from fieldagent.hub.store.contract import Store
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.named_object import named_object


@dataclass(frozen=True, slots=True)
class PartHost:
    """Services of the hub for its parts."""

    store: Store
    authentication: Authentication
    clock: Callable[[], float]
    """Returns Unix time."""
    prices: Prices
    """Returns an operator's price per credit."""
    note_event: Callable[[str, Became], None]
    """Counts an event that arrived, by its source."""


@dataclass(frozen=True, slots=True)
class HubPart:
    """Describes one part. A field that is left out adds nothing."""

    routes: Callable[[PartHost], Sequence[Route]] = lambda host: ()
    refusals: str = ""
    """Package with the catalogues of its refusals."""


def hub_parts() -> list[HubPart]:
    """Return the parts of all extensions."""
    return [named_object(place, HubPart) for place in places_of("hub_parts").values()]
