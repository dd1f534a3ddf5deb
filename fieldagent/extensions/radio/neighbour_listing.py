"""`GET /api/neighbours`: lists the stations that were heard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fieldagent.agent.journal import inbound, on_air, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.extensions.radio.mesh.hub_routes import KnownRoute
from fieldagent.extensions.radio.mesh.station import Station
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import Channel

MISSING_SHOWN_MAX = 8


def list_neighbours(journal: Journal, station: Station) -> dict[str, Any]:
    """Return the neighbours. The neighbour that was heard last comes first."""
    names = inbound.read_station_names(journal)
    hub_routes = station.piggyback.hub_routes.get_valid_routes()
    in_range = set(station.neighbours.list_in_range())
    repeated_packages, hops = _list_repeated_packages(journal, station), station.get_in_range()
    neighbours = [
        {
            "station": number,
            "name": names.get(number),
            "callsign": each.callsign,
            "version": each.version,
            "hops": 1 if number in in_range else hops.get(number),
            "lastHeard": journal.clock.date(each.heard_at),
            "inRange": number in in_range,
            "rssi": each.rssi,
            "snr": each.snr,
            **_describe_hub_route(hub_routes.get(number)),
            "missing": _list_missing(number, repeated_packages) if number in in_range else [],
            "radioKey": station.key_change.find_name(each.key),
        }
        for number, each in reversed(station.neighbours.known.items())
    ]
    beyond = [
        {"station": number, "name": names.get(number), "hops": distance}
        for number, distance in sorted(hops.items(), key=lambda each: each[1])
        if distance > 1
    ]
    return {"station": station.number, "neighbours": neighbours, "remoteStations": beyond}


def _describe_hub_route(route: KnownRoute | None) -> dict[str, Any]:
    if route is None:
        return {"hub": None, "hopsToHub": None, "routeBatteryLow": None}
    return {
        "hub": route.hops == 0,
        "hopsToHub": route.hops,
        "routeBatteryLow": route.is_battery_low,
    }


def _list_repeated_packages(journal: Journal, station: Station) -> list[tuple[int, set[int]]]:
    """Return pairs of the id of a Package of this kit that is being repeated, and the stations that
    have it. The newest Package comes first.
    """
    items = station.rounds.list_ours()
    known = outbound.read_packages(journal, [item.entry.sequence for item in items])
    ids = {sequence: each.id for sequence, each in known.items()}
    packages = [(ids.get(item.entry.sequence) or 0, item.confirmed_by) for item in items]
    return [each for each in reversed(packages) if each[0] > 0]


def _list_missing(number: int, own_items: list[tuple[int, set[int]]]) -> list[int]:
    return [id_ for id_, has in own_items if number not in has][:MISSING_SHOWN_MAX]


def list_unconfirmed_stations(
    journal: Journal,
    station: Station,
    sequence: int,
    deliveries: Mapping[Channel, ChannelDelivery],
) -> list[dict[str, Any]]:
    """Return the stations in range that have not confirmed a Package that waits for the radio or is
    being repeated.
    """
    delivery = deliveries.get(Channel.RADIO)
    if delivery is None:
        return []
    goes_round = any(item.entry.sequence == sequence for item in station.rounds.list_ours())
    if delivery.status is not None and not goes_round:
        return []
    names, has = inbound.read_station_names(journal), on_air.read_holders(journal, sequence)
    return [
        {"station": number, "name": names.get(number)}
        for number in station.neighbours.list_in_range()
        if number not in has
    ]
