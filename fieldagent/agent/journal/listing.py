"""Lists and counters for the API: posted Packages, newest first; waiting Packages, oldest first;
the positions of this kit and of others; and the counters that the journal's triggers update in the
commit of each event.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import field, replace
from typing import Any

from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.losses import report_unreadable
from fieldagent.package.delivery import NOT_CONFIGURED
from fieldagent.package.forecast import PastDelivery
from fieldagent.package.package import (
    SOS_PRIORITY,
    Channel,
    Location,
    Status,
    Waypoint,
    convert_to_date,
)
from fieldagent.package.payload import Identity
from fieldagent.package.reading import read_stored_package, read_timestamp
from fieldagent.package.tracks import PlacedPoint
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

END = 2**63 - 1
"""Number that is higher than the sequence of any Package and the number of any payload."""


class ListedPackage(NamedTuple):
    sequence: int
    status: str | None


Batch = Sequence[ListedPackage]


def list_newest(journal: Journal, end_place: int, limit: int) -> Batch:
    """Return the newest Packages with a sequence lower than `end_place`. The query uses the table's
    key, so it is fast everywhere in a long journal.
    """
    rows = journal.read(
        "SELECT sequence, status FROM package WHERE sequence < ? ORDER BY sequence DESC LIMIT ?",
        end_place,
        limit,
    )
    return [ListedPackage(*row) for row in rows]


def list_transmissions(
    journal: Journal, sequences: Sequence[int]
) -> dict[int, list[tuple[str, int]]]:
    """Return the transmissions of each Package, by sequence: pairs of a cost text from the history
    and the number of transmissions with this cost.
    """
    costs: dict[int, list[tuple[str, int]]] = {sequence: [] for sequence in sequences}
    for sequence, detail, times in journal.read(
        "SELECT sequence, detail, times FROM story WHERE event = 'sent'"
        " AND sequence IN (SELECT value FROM json_each(?))",
        json.dumps(sequences),
    ):
        costs[sequence].append((detail, times))
    return costs


def list_past_deliveries(journal: Journal, channel: Channel, limit: int) -> list[PastDelivery]:
    """Return the past deliveries of the newest Packages on `channel`, newest first. Packages that
    have not started on the channel are left out. SOS Packages are left out too, because an SOS does
    not wait for other Packages.
    """
    rows = journal.read(
        "SELECT accepted + begins, leg.ended, leg.status FROM leg JOIN package USING (sequence)"
        " WHERE channel = ? AND reason <> ? AND priority < ?"
        " AND accepted + begins <= ifnull(leg.ended, ?) ORDER BY leg.sequence DESC LIMIT ?",
        channel,
        NOT_CONFIGURED,
        SOS_PRIORITY,
        journal.clock.now(),
        limit,
    )
    date = journal.clock.date
    return [
        PastDelivery(
            date(begun_at), None if ended_at is None else date(ended_at), status == Status.DELIVERED
        )
        for begun_at, ended_at, status in rows
    ]


def list_waiting_behind(
    journal: Journal, channels: Collection[Channel], start_place: int, limit: int
) -> list[int]:
    """Return the Packages that wait on any of these channels and have a sequence above
    `start_place`, oldest first.
    """
    # Use the table's key, because the index has another order.
    rows = journal.read(
        f"SELECT DISTINCT sequence FROM leg NOT INDEXED WHERE sequence > ? AND"
        f" {_make_waiting_condition(channels)}"
        " ORDER BY sequence LIMIT ?",
        start_place,
        limit,
    )
    return [sequence for (sequence,) in rows]


async def count_waiting(journal: Journal, channels: Collection[Channel]) -> int:
    """Return the number of Packages that wait on any of these channels. Each Package is counted
    once.
    """
    rows = await journal.read_aside(
        f"SELECT count(DISTINCT sequence) FROM leg WHERE {_make_waiting_condition(channels)}"
    )
    return int(rows[0][0])


def _make_waiting_condition(channels: Collection[Channel]) -> str:
    names = ", ".join(f"'{channel}'" for channel in channels)
    return f"status IS NULL AND channel IN ({names})"


@dataclass(slots=True)
class Latency:
    """Distribution of the delivery times of Packages."""

    counts: dict[int, int] = field(default_factory=dict)
    """Number of Packages for each bound of LATENCY_BOUNDS. A Package is counted at the lowest bound
    that its delivery time does not exceed, or at 0 if its time is above all bounds."""
    seconds: float = 0.0


def count_ended(journal: Journal) -> list[tuple[str, str, int]]:
    """Return the number of ended channel deliveries since the journal was created, for each channel
    and status.
    """
    return _read_counts(journal, "ended")


def count_hook_results(journal: Journal) -> list[tuple[str, str, int]]:
    """Return the number of calls for each hook and result: `handed`, `again` or `dead`."""
    return _read_counts(journal, "hook")


def _read_counts(journal: Journal, kind: str) -> list[tuple[str, str, int]]:
    rows = journal.read(
        "SELECT who, result, count FROM tally WHERE what = ? ORDER BY who, result", kind
    )
    return [tuple(row) for row in rows]


def read_latencies(journal: Journal) -> dict[str, Latency]:
    """Return the delivery times by channel, from acceptance to delivery."""
    by_channel: dict[str, Latency] = {}
    for channel, bound, count, seconds in journal.read(
        "SELECT who, result, count, seconds FROM tally WHERE what = 'latency'"
    ):
        latency = by_channel.setdefault(channel, Latency())
        latency.counts[int(bound)] = count
        latency.seconds += seconds
    return by_channel


OWN_IDENTITY = Identity("", "this kit", "Device")
SEARCHED_ROWS_MAX = 20_000
"""A search reads at most this many Packages and as many payloads, the newest ones first."""
_SELECT_OWN = (
    "SELECT sequence, body, accepted FROM package WHERE sequence > (SELECT max(sequence) FROM"
    " package) - {looked_at} AND sequence NOT IN (SELECT sequence FROM carried)"
    " AND (instr(body, '\"location\":{{') OR instr(body, '\"waypoint\":{{'))"
    " ORDER BY sequence DESC LIMIT {limit}"
)
_SELECT_OTHERS = (
    "SELECT request_id, body FROM inbound WHERE number > (SELECT max(number) FROM inbound)"
    " - {looked_at} AND instr(body, '\"latitude\":') ORDER BY number DESC LIMIT {limit}"
)


async def list_newest_positions(
    journal: Journal, limit: int
) -> tuple[list[PlacedPoint], list[PlacedPoint]]:
    """Return the positions and waypoints of this kit, and those of others. Each list begins with
    the newest and has at most `limit` members. A row that cannot be read is logged and left out.
    """
    own = await journal.read_aside(_SELECT_OWN.format(limit=limit, looked_at=SEARCHED_ROWS_MAX))
    others = await journal.read_aside(
        _SELECT_OTHERS.format(limit=limit, looked_at=SEARCHED_ROWS_MAX)
    )
    return list(_list_own_positions(journal, own)), list(_list_received_positions(others))


def find_last_own(journal: Journal) -> Location | None:
    """Return the last position that this kit posted, including its time, or None if there is
    none.
    """
    sql = _SELECT_OWN.format(limit=SEARCHED_ROWS_MAX, looked_at=SEARCHED_ROWS_MAX)
    for each in _list_own_positions(journal, journal.read(sql)):
        if isinstance(each.place, Location):
            return replace(each.place, timestamp=each.moment)
    return None


def _list_own_positions(journal: Journal, rows: Sequence[Sequence[Any]]) -> Iterator[PlacedPoint]:
    for sequence, body, accepted in rows:
        try:
            package = read_stored_package(body)
        except ValueError:
            report_unreadable("Package", str(sequence))
            continue
        location = package.item
        if isinstance(location, Location | Waypoint):
            moment = location.timestamp or convert_to_date(int(journal.clock.date(accepted)))
            yield PlacedPoint(str(sequence), OWN_IDENTITY, None, moment, location, package.sos)


def _list_received_positions(rows: Sequence[Sequence[Any]]) -> Iterator[PlacedPoint]:
    for request_id, body in rows:
        try:
            (payload,) = json.loads(body)["payloads"]
            (event,) = payload["events"]
            if "latitude" in event:
                yield _read_placed_point(request_id, payload["identity"], event)
        except (KeyError, TypeError, ValueError):
            report_unreadable("payload", request_id)


def _read_placed_point(
    request_id: str, identity: dict[str, str], event: dict[str, Any]
) -> PlacedPoint:
    """Return the position or waypoint of a payload. Raises KeyError, TypeError or ValueError if the
    row is damaged.
    """
    position, moment = _read_position(event), read_timestamp(event["timestamp"])
    identity_of_sender = Identity(
        identity["id"], identity["name"] or identity["id"], identity["type"]
    )
    return PlacedPoint(
        request_id, identity_of_sender, None, moment, position, bool(event.get("sos"))
    )


def _read_position(event: dict[str, Any]) -> Location | Waypoint:
    latitude, longitude = float(event["latitude"]), float(event["longitude"])
    if event["type"] == "Waypoint":
        return Waypoint(latitude, longitude, event["name"], None, event.get("notes"))
    return Location(latitude, longitude, None, event.get("altitude"))
