"""Data of a kit for one week: the kit's positions, items to and from the kit, its incidents, and
the costs of its satellite messages.

`read_kit_week` only reads, and is one operation for `Store.read` or `once`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

from fieldagent.extensions.places.hub.week import Week, compute_longest_pause
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.api import reading, sos_desk
from fieldagent.hub.api.reading import END
from fieldagent.hub.records import sos, usage
from fieldagent.hub.records.stored_entry import decode_stored_entry
from fieldagent.hub.records.usage import Prices
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import Item, Location, get_date
from fieldagent.package.payload import Identity
from fieldagent.package.tracks import PlacedPoint, split_into_legs
from fieldagent.system.lazy_named_tuple import NamedTuple

ITEMS_MAX = 50_000
"""Largest number of items per direction. A kit that sends a position every 15 seconds sends 40 320
items in a week."""
ITEMS_READ_MAX = 400_000
"""Largest number of items that the hub reads for a report. Items that arrived after the week are
included, because items of the week can arrive late."""
AT_ONCE = 500


class SentItem(NamedTuple):
    """An item from the kit that the hub has stored."""

    kind: str
    at: float
    """Unix time when the kit sent the item, according to the kit."""
    came: float
    sos: bool


class ReceivedItem(NamedTuple):
    """An item for the kit, with the state of its delivery at the time of the report."""

    kind: str
    at: float
    state: str
    """State of the delivery: waiting, on its way, stored, expired, collapsed."""
    over: str
    """Bearer; empty if no bearer has accepted the item."""
    reason: str


class KitWeek(NamedTuple):
    device: int
    name: str
    user: str
    week: Week
    made: float
    track: list[PlacedPoint]
    """Positions in the order of the kit's own times. Unauthenticated positions are not included."""
    unproved: int
    """Number of unauthenticated positions, which the track does not contain."""
    pause: float
    """Number of seconds without a position from which a pause is shown as a gap."""
    sent: list[SentItem]
    deliveries: list[ReceivedItem]
    incidents: list[dict[str, Any]]
    """Incidents in the form in which the desk shows them, with their timelines."""
    costs: list[dict[str, Any]]
    """Satellite costs of each day (see `usage.make_row`)."""
    money: str
    """Total cost of the days according to the hub's count, or an empty text if no price is
    known."""
    is_complete: bool
    """False if there was more data in the week than a report can contain."""

    def find_gaps(self) -> list[tuple[datetime, datetime]]:
        """Return the times at which each gap between two positions begins and ends."""
        parts = split_into_legs(self.track, self.pause)
        return [(before[-1].moment, after[0].moment) for before, after in pairwise(parts)]

    def count_sent(self) -> Counter[str]:
        """Return the number of stored items of each kind. SOS is a separate kind."""
        return Counter("SOS" if each.sos else each.kind for each in self.sent)

    def count_received(self) -> Counter[tuple[str, str, str]]:
        """Return the number of items of each kind, state and bearer."""
        return Counter((each.kind, each.state, each.over) for each in self.deliveries)


def read_kit_week(
    db: Db, workspace: int, device: int, week: Week, prices: Prices, now: float
) -> KitWeek:
    """Read the data of a kit in the workspace for one week. `prices` maps operators to their price
    per credit.
    """
    ((name, member, user, type_),) = db.execute(
        "SELECT device.name, member.id, member.name, type FROM device"
        " JOIN member ON member.id = device.member WHERE device.id = ? AND workspace = ?",
        *(device, workspace),
    )
    identity = Identity(str(member), user, type_)
    track: list[PlacedPoint] = []
    sent: list[SentItem] = []
    unproved, is_cut = 0, False
    for number, row in enumerate(_list_sent(db, workspace, member, device, week)):
        if is_cut := number == ITEMS_READ_MAX or len(sent) == ITEMS_MAX:
            break
        request_id, kind, is_sos, unauthenticated, accepted, body = row
        entry = decode_stored_entry(body)
        content = entry.content
        assert isinstance(content, Item), "the ledger holds items alone"
        moment = get_date(content, entry.time)
        if not week.begins <= moment.timestamp() < week.ends:
            continue
        sent.append(SentItem(kind, moment.timestamp(), float(accepted), is_sos == 1))
        if isinstance(content, Location):
            unproved += bool(unauthenticated)
            if not unauthenticated:
                track.append(PlacedPoint(request_id, identity, name, moment, content, is_sos == 1))
    track.sort(key=lambda each: each.moment)
    deliveries = _list_received(db, workspace, device, week, now)
    days = usage.list_days(db, workspace, *week.days, device)
    return KitWeek(
        device,
        name,
        user,
        week,
        now,
        track,
        unproved,
        compute_longest_pause([each.moment.timestamp() for each in track]),
        sorted(sent, key=lambda each: each.at),
        deliveries,
        _list_incidents(db, workspace, device, week),
        [usage.make_row(each, prices) for each in days],
        usage.compute_total(days, prices).money,
        not is_cut and len(deliveries) < ITEMS_MAX,
    )


def _list_sent(
    db: Db, workspace: int, member: int, device: int, week: Week
) -> Iterator[tuple[Any, ...]]:
    """Yield the items of a kit that arrived after the beginning of the week, except texts of the
    hub about the kit.
    """
    place = 0
    while True:
        rows = db.execute(
            "SELECT id, request_id, kind, sos, unauthenticated, accepted, body FROM item"
            " WHERE workspace = ? AND sender = ? AND id > ? AND source_device = ?"
            " AND accepted >= ? AND (incident IS NULL OR source_sequence IS NOT NULL OR"
            " (SELECT sos.kind FROM sos WHERE sos.id = incident) = 'sos') ORDER BY id LIMIT ?",
            *(workspace, member, place, device, week.begins, AT_ONCE),
        )
        for id_, *columns in rows:
            place = id_
            yield tuple(columns)
        if len(rows) < AT_ONCE:
            return


def _list_received(
    db: Db, workspace: int, device: int, week: Week, now: float
) -> list[ReceivedItem]:
    """Return the items for the kit in the week, oldest first. Reading stops after ITEMS_MAX
    items.
    """
    everything = Caller(0, "", workspace, frozenset(), 0, "Integration", "", "", False)
    deliveries: list[ReceivedItem] = []
    before: int | None = END
    while before is not None and len(deliveries) < ITEMS_MAX:
        some, before = reading.list_deliveries(db, everything, device, None, before, AT_ONCE, now)
        deliveries += [
            ReceivedItem(
                "SOS" if each["sos"] else each["kind"] or "item",
                each["accepted"],
                each["state"],
                each["over"] or "",
                each["reason"] or "",
            )
            for each in some
            if week.begins <= each["accepted"] < week.ends
        ]
        if some and max(each["accepted"] for each in some) < week.begins:
            break
    return deliveries[::-1]


def _list_incidents(db: Db, workspace: int, device: int, week: Week) -> list[dict[str, Any]]:
    """Return the incidents that were raised in the week, or were still open when it began."""
    rows = db.execute(
        "SELECT id FROM sos WHERE device = ? AND raised < ? AND (closed IS NULL OR closed >= ?)"
        " ORDER BY id",
        *(device, week.ends, week.begins),
    )
    incidents = [sos.find_incident(db, workspace, id_) for (id_,) in rows]
    return [
        {**sos_desk.describe_sos(db, each), "timeline": sos_desk.list_timeline(db, each.id)}
        for each in incidents
        if each is not None
    ]


def encode_week(report: KitWeek) -> Mapping[str, Any]:
    """Return the whole report in a form for JSON. Times are Unix seconds."""
    return {
        "kit": {"id": report.device, "name": report.name, "user": report.user},
        "week": report.week.name,
        "begins": report.week.begins,
        "ends": report.week.ends,
        "made": report.made,
        "complete": report.is_complete,
        "positions": [
            {
                "at": each.moment.timestamp(),
                "latitude": each.place.latitude,
                "longitude": each.place.longitude,
            }
            for each in report.track
        ],
        "unproved": report.unproved,
        "gaps": [
            {"from": gap_start.timestamp(), "to": ends.timestamp()}
            for gap_start, ends in report.find_gaps()
        ],
        "fromKit": dict(sorted(report.count_sent().items())),
        "toKit": [
            {"kind": kind, "state": state, "over": over or None, "count": count}
            for (kind, state, over), count in sorted(report.count_received().items())
        ],
        "incidents": report.incidents,
        "costs": report.costs,
        "money": report.money or None,
    }
