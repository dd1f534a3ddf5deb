"""Routes with a due time: if a kit is not at a place by this time, it is overdue.

1. A kit has arrived if it has reported a position within the place, and the position's own time is
   after the route was added. The time when the hub received the position does not matter.
2. If there is no such position by the due time plus the margin, the hub raises one alarm. If the
   hub was down at that time, it raises the alarm when it starts.
3. A route ends when the kit arrives, even after the alarm, or when a person ends it with a reason.

A check-in monitors whether the hub hears a kit at all (`field.check_in`). A route monitors whether
the kit is at the right place. Each function is one operation for `Store.commit`, `read` or `once`,
or a part of one. The functions raise Refused with the reason. Times are Unix seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fieldagent.extensions.places.hub import shape
from fieldagent.extensions.places.hub.clock_words import format_duration, format_time
from fieldagent.extensions.places.hub.crossing import find_side
from fieldagent.extensions.places.hub.shape import Circle
from fieldagent.hub.access.directory import Refused, Row, check_name, insert_row
from fieldagent.hub.part import KitPosition
from fieldagent.hub.records import audit, ledger, sos
from fieldagent.hub.records.audit import ADMINISTRATION
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.records.sos import Actor
from fieldagent.hub.store.contract import Db, find_earliest, make_membership
from fieldagent.package.package import SOS_PRIORITY, Message
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence

ALARM_KIND = "overdue"
"""Kind of the alarm about a route, in the table of incidents. A late check-in has the same kind."""
DEFAULT_MARGIN_S = 1_800
"""Default margin, which is the number of seconds from the due time to the alarm."""
ROUTES_MAX = 1_000
"""Largest number of active routes in a workspace."""
LISTED_ROUTES_MAX = 200
"""Largest number of ended routes in a list. The list contains the newest."""
AT_ONCE = 500


class RoutePlan(NamedTuple):
    device: int
    name: str
    """Name of the place that people see."""
    place: Circle
    due: float
    margin: int = DEFAULT_MARGIN_S


def add_route(
    db: Db, workspace: int, plan: RoutePlan, now: float, *, actor: str = ADMINISTRATION
) -> int:
    """Add a route for a kit, and return its id. Raises Refused if the name is invalid, the due time
    has passed, or there are `ROUTES_MAX` routes.
    """
    check_name(plan.name)
    if plan.due <= now:
        moment = format_time(plan.due, now)
        raise Refused(
            sentence(
                "{told} has passed: use a future time, in UTC or with an offset",
                told=moment,
            )
        )
    sql = "SELECT count(*) FROM route WHERE workspace = ? AND ended IS NULL"
    ((route_count,),) = db.execute(sql, workspace)
    if route_count >= ROUTES_MAX:
        raise Refused(
            sentence("a workspace can have {max} active routes at most: end some", max=ROUTES_MAX)
        )
    id_ = insert_row(
        db,
        "route",
        workspace=workspace,
        device=plan.device,
        name=plan.name,
        shape=json.dumps(shape.encode_shape(plan.place)),
        due=plan.due,
        margin=plan.margin,
        created=now,
    )
    detail = f"{id_}: {plan.device} at {plan.name} by {format_time(plan.due, now)}"
    audit.write_line(db, workspace, actor, "route add", detail, now)
    db.announce(sos.EVENTS)
    return id_


def list_routes(db: Db, workspace: int) -> list[Row]:
    """Return the active routes and the newest ended routes, newest first. `state` is `under way`,
    `overdue`, `arrived` or `ended`.
    """
    columns = (
        "SELECT route.id, route.device, device.name, route.name, shape, due, margin, route.created,"
        " arrived, alarm, ended, ended_by, why FROM route JOIN device ON device.id = route.device"
        " WHERE route.workspace = ? AND ended IS"
    )
    rows = db.execute(f"{columns} NULL ORDER BY route.id DESC", workspace)
    rows += db.execute(
        f"{columns} NOT NULL ORDER BY route.id DESC LIMIT {LISTED_ROUTES_MAX}", workspace
    )
    return [_encode_route(row) for row in rows]


def _encode_route(row: Sequence[Any]) -> Row:
    id_, device, kit, name, outline, due, margin, created, *stages = row
    arrived_at, alarm, ended_at, ended_by, reason = stages
    state = "overdue" if alarm is not None else "under way"
    if ended_at is not None:
        state = "ended" if arrived_at is None else "arrived"
    return {
        "id": id_,
        "device": {"id": device, "name": kit},
        "name": name,
        **shape.parse_stored_drawing(outline),
        "due": float(due),
        "margin": margin,
        "created": float(created),
        "state": state,
        "arrived": None if arrived_at is None else float(arrived_at),
        "incident": alarm,
        "ended": None if ended_at is None else float(ended_at),
        "endedBy": ended_by,
        "why": reason,
    }


def end_route(db: Db, workspace: int, route: int, actor: Actor, reason: str, now: float) -> None:
    """End a route in the name of a person, with a reason. An alarm about the route remains until a
    person closes it. Raises Refused if the reason is empty, or if the route is not active.
    """
    if not reason.strip():
        raise Refused("enter a reason: it is the only explanation that others see later")
    rows = db.execute(
        "UPDATE route SET ended = ?, ended_by = ?, why = ? WHERE id = ? AND workspace = ?"
        " AND ended IS NULL RETURNING name, alarm",
        *(now, actor.name, reason, route, workspace),
    )
    if not rows:
        raise Refused(
            sentence(
                "no route {route} is active in that workspace; see `fieldagent hub route list`",
                route=route,
            )
        )
    ((name, alarm),) = rows
    if alarm is not None and db.execute("SELECT 1 FROM sos WHERE id = ?", alarm):
        detail = f"the route to {name} is ended: {reason}"
        sos.record_event(db, alarm, "note", now, member=actor.member, detail=detail)
    person = ADMINISTRATION if actor.member is None else str(actor.member)
    audit.write_line(db, workspace, person, "route end", f"{route}: {reason}", now)


def end_arrived_routes(db: Db, positions: Sequence[KitPosition], now: float) -> None:
    """End the routes whose kits have arrived. `positions` are in the order of each kit's own
    times.
    """
    membership, devices = make_membership(db, sorted({each.device for each in positions}))
    for id_, device, name, outline, alarm, created in db.execute(
        "SELECT id, device, name, shape, alarm, created FROM route WHERE ended IS NULL"
        f" AND device {membership} ORDER BY id{db.for_update()}",
        *devices,
    ):
        if (place := shape.load_stored_shape(outline)) is None:
            continue
        within = (
            each.position.at
            for each in positions
            if each.device == device
            and each.position.at >= created
            and find_side(place, each.position)
        )
        if (at := next(within, None)) is None:
            continue
        detail = f"a position within '{name}', of {format_time(at, now)}"
        db.execute(
            "UPDATE route SET arrived = ?, ended = ?, why = ? WHERE id = ?", at, now, detail, id_
        )
        if alarm is not None and db.execute("SELECT 1 FROM sos WHERE id = ?", alarm):
            sos.record_event(db, alarm, "heard", now, detail=detail)


def compute_next_due(db: Db) -> float:
    """Return the Unix time when the next route becomes overdue."""
    sql = "SELECT min(due + margin) FROM route WHERE ended IS NULL AND alarm IS NULL"
    return find_earliest(db, sql)


def check_overdue(db: Db, now: float) -> list[str]:
    """Raise the alarm for overdue routes, and return the log lines."""
    rows = db.execute(
        "SELECT r.id, r.workspace, r.device, member, device.name, r.name, due, margin, latitude,"
        " longitude, position_at FROM route r JOIN device ON device.id = r.device"
        " LEFT JOIN contact ON contact.device = r.device"
        " WHERE ended IS NULL AND alarm IS NULL AND due + margin <= ? ORDER BY r.id"
        + db.skip_locked("r"),
        now,
    )
    lines = []
    for id_, workspace, device, member, kit, name, due, margin, *place in rows:
        text = (
            f"{kit} was to be at '{name}' by {format_time(due, now)}, and is overdue since"
            f" {format_time(due + margin, now)}: no position within it has come."
            f" {_describe_newest(place, now)}"
        )
        posting = Posting(workspace, member, Message(text), int(now), SOS_PRIORITY, alarm=True)
        alarm = ledger.raise_alarm(db, posting, device, now, ALARM_KIND)
        db.execute("UPDATE route SET alarm = ? WHERE id = ?", alarm, id_)
        lines.append(f"{text} Alarm {alarm}; `fieldagent hub alarm show {alarm}`")
    return lines


def _describe_newest(place: Sequence[float | None], now: float) -> str:
    latitude, longitude, at = place
    if latitude is None or longitude is None or at is None:
        return "Its position is unknown."
    return (
        f"Its newest position is {latitude:.5f} {longitude:.5f}, of {format_time(at, now)},"
        f" {format_duration(now - at)} old."
    )


def forget(db: Db, before: float) -> int:
    """Delete some routes that ended before `before`, and return their number."""
    deleted_rows = db.execute(
        "DELETE FROM route WHERE id IN (SELECT id FROM route WHERE ended < ? ORDER BY id LIMIT ?)"
        " RETURNING id",
        *(before, AT_ONCE),
    )
    return len(deleted_rows)
