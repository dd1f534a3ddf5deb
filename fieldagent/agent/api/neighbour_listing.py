"""The stations that were heard on the air, as `GET /api/neighbours` tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fieldagent.agent.journal import inbound
from fieldagent.agent.journal.journal import Journal

if TYPE_CHECKING:
    # An agent without a radio does without the memory that the air takes.
    from fieldagent.agent.mesh.station import Station


def listing(journal: Journal, station: Station | None) -> dict[str, Any]:
    """The one that was heard last is the first; `station` is null where there is no radio."""
    if station is None:
        return {"station": None, "neighbours": []}
    names = inbound.station_names(journal)
    in_earshot = set(station.neighbours.in_earshot())
    found = [
        {
            "station": number,
            "name": names.get(number),
            "lastHeard": journal.clock.date(each.heard_at),
            "inEarshot": number in in_earshot,
            "rssi": each.rssi,
            "snr": each.snr,
            "hub": each.hub,
        }
        for number, each in reversed(station.neighbours.known.items())
    ]
    return {"station": station.number, "neighbours": found}
