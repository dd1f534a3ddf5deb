"""Fences: shapes of a workspace whose edge is watched. The hub raises an alarm when a kit crosses
the edge.

The hub knows only positions, so an alarm contains two positions of a kit on different sides of the
edge. The time of the crossing between them is unknown. While the alarm about a fence and a kit is
not closed, further crossings of the kit are added to this alarm.

Each function is one operation for `Store.commit`, `read` or `once`, or a part of such an operation.
The functions raise Refused with the reason. Times are Unix seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fieldagent.extensions.places.hub import crossing, shape
from fieldagent.extensions.places.hub.clock_words import format_time
from fieldagent.extensions.places.hub.crossing import Crossing, FenceSide
from fieldagent.extensions.places.hub.shape import Shape
from fieldagent.hub.access import people
from fieldagent.hub.access.directory import (
    Refused,
    Row,
    check_name,
    find_device_named,
    insert_row,
)
from fieldagent.hub.part import KitPosition
from fieldagent.hub.records import audit, ledger, sos
from fieldagent.hub.records.audit import ADMINISTRATION
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.records.sos import SosState
from fieldagent.hub.store.contract import Db, insert, make_membership
from fieldagent.package.coordinates import DatedPlace
from fieldagent.package.package import SOS_PRIORITY, Message
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence

ALARM_KIND = "fence"
"""Kind of the alarm about a crossing, in the table of incidents."""
REPORTED_CROSSINGS = ("both", "enter", "leave")
"""Crossings that a fence can report."""
FENCES_MAX = 200
"""Largest number of fences in a workspace. The number is limited because each position is checked
against all fences for its kit."""
LATE_S = 600.0
"""Seconds by which a position must be late for the alarm to contain the arrival time of the
position."""


class Fence(NamedTuple):
    id: int
    name: str
    shape: Shape
    alarm_on: str


class FenceKits(NamedTuple):
    """Kits to which a fence applies: named kits, and the kits of a group. The group is given by its
    id or name.
    """

    devices: Sequence[str] = ()
    group: str = ""


def add_fence(
    db: Db,
    workspace: int,
    name: str,
    fence_shape: Shape,
    alarm_on: str,
    kits: FenceKits,
    now: float,
    *,
    actor: str = ADMINISTRATION,
) -> int:
    """Add a fence and return its id. The last positions of the kits determine their sides, without
    an alarm. Raises Refused if the name is invalid or in use, if there are `FENCES_MAX` fences, or
    if a kit or the group is unknown.
    """
    check_name(name)
    names = [row["name"] for row in list_fences(db, workspace)]
    if name in names:
        raise Refused(
            sentence(
                "a fence {name} already exists; use another name, or remove that fence",
                name=repr(name),
            )
        )
    if len(names) >= FENCES_MAX:
        raise Refused(
            sentence("a workspace can have {max} fences at most: remove some", max=FENCES_MAX)
        )
    devices = {find_device_named(db, workspace, each) for each in kits.devices}
    id_ = insert_row(
        db,
        "fence",
        workspace=workspace,
        name=name,
        shape=json.dumps(shape.encode_shape(fence_shape)),
        tells=alarm_on,
        named=int(bool(devices)),
        team=people.find_group(db, workspace, kits.group) if kits.group else None,
        created=now,
    )
    insert(db, "fence_kit", ("fence", "device"), [(id_, device) for device in sorted(devices)])
    columns = ("fence", "device", "inside", "clear", "newest")
    insert(db, "fence_standing", columns, _judge_positions(db, workspace, id_, fence_shape))
    audit.write_line(db, workspace, actor, "fence add", f"{id_} {name}", now)
    return id_


def _judge_positions(db: Db, workspace: int, fence: int, drawn: Shape) -> list[tuple[Any, ...]]:
    rows = []
    for device, *place in db.execute(
        "SELECT device, latitude, longitude, position_at FROM contact JOIN device"
        " ON device.id = device WHERE workspace = ? AND position_at IS NOT NULL ORDER BY device",
        workspace,
    ):
        side, _ = crossing.compute_crossing(drawn, FenceSide(), DatedPlace(*map(float, place)))
        inside = None if side.inside is None else int(side.inside)
        rows.append((fence, device, inside, side.clear, side.newest))
    return rows


def list_fences(db: Db, workspace: int) -> list[Row]:
    """Return all fences of a workspace with their shapes and their kits (id and name). If the fence
    applies to all kits, or to the kits of `group`, `devices` is None.
    """
    kits: dict[int, list[Row]] = {}
    for fence, device, name in db.execute(
        "SELECT fence, device, device.name FROM fence_kit JOIN device ON device.id = device"
        " WHERE workspace = ? ORDER BY device",
        workspace,
    ):
        kits.setdefault(fence, []).append({"id": device, "name": name})
    rows = db.execute(
        "SELECT fence.id, fence.name, shape, tells, named, team, team.name FROM fence"
        " LEFT JOIN team ON team.id = team WHERE fence.workspace = ? ORDER BY fence.id",
        workspace,
    )
    return [
        {
            "id": id_,
            "name": name,
            "alarmOn": alarm_on,
            "devices": kits.get(id_, []) if alarm_device else None,
            "group": None if team is None else {"id": str(team), "name": team_name},
            **shape.parse_stored_drawing(outline),
        }
        for id_, name, outline, alarm_on, alarm_device, team, team_name in rows
    ]


def remove_fence(
    db: Db, workspace: int, fence: int, now: float, *, actor: str = ADMINISTRATION
) -> None:
    """Remove a fence. Its past alarms remain. Raises Refused if the workspace does not have the
    fence.
    """
    deleted_rows = db.execute(
        "DELETE FROM fence WHERE id = ? AND workspace = ? RETURNING name", fence, workspace
    )
    if not deleted_rows:
        raise Refused(
            sentence(
                "no fence {fence} is in that workspace; see `fieldagent hub fence list`",
                fence=fence,
            )
        )
    audit.write_line(db, workspace, actor, "fence remove", f"{fence} {deleted_rows[0][0]}", now)


_FOR = (
    "SELECT fence.id, device.id, fence.name, shape, tells FROM fence"
    " JOIN device ON device.workspace = fence.workspace"
    " WHERE (named = 0 OR EXISTS (SELECT 1 FROM fence_kit"
    " WHERE fence_kit.fence = fence.id AND fence_kit.device = device.id))"
    " AND (team IS NULL OR EXISTS (SELECT 1 FROM team_member"
    " WHERE team_member.team = fence.team AND team_member.member = device.member))"
    " AND device.id "
)


def check_positions(db: Db, positions: Sequence[KitPosition], now: float) -> None:
    """Check positions against the fences, in the order of each kit's times, and raise the alarms.
    The function locks rows in the order of the kits, so that only one hub process checks a kit at a
    time.
    """
    membership, devices = make_membership(db, sorted({each.device for each in positions}))
    fences_by_device: dict[int, list[Fence]] = {}
    for id_, device, name, outline, alarm_on in db.execute(
        f"{_FOR}{membership} ORDER BY device.id, fence.id", *devices
    ):
        if (edge := shape.load_stored_shape(outline)) is not None:
            fences_by_device.setdefault(device, []).append(Fence(id_, name, edge, alarm_on))
    if not fences_by_device:
        return
    rows = [(each.id, device) for device, fences in fences_by_device.items() for each in fences]
    insert(db, "fence_standing", ("fence", "device"), rows, conflict="DO NOTHING")
    membership, devices = make_membership(db, sorted(fences_by_device))
    standings = {
        (fence, device): (FenceSide(None if inside is None else bool(inside), *times), alarm)
        for device, fence, inside, *times, alarm in db.execute(
            "SELECT device, fence, inside, clear, newest, alarm FROM fence_standing"
            f" WHERE device {membership} ORDER BY device, fence{db.for_update()}",
            *devices,
        )
    }
    for position in positions:
        for fence in fences_by_device.get(position.device, ()):
            before, alarm = standings[fence.id, position.device]
            after, crossed = crossing.compute_crossing(fence.shape, before, position.position)
            if after == before:
                continue
            if crossed is not None and fence.alarm_on in ("both", _format_verb(crossed)):
                alarm = _report_crossing(db, fence, position, crossed, alarm, now)
            standings[fence.id, position.device] = after, alarm
            db.execute(
                "UPDATE fence_standing SET inside = ?, clear = ?, newest = ?, alarm = ?"
                " WHERE fence = ? AND device = ?",
                None if after.inside is None else int(after.inside),
                *(after.clear, after.newest, alarm, fence.id, position.device),
            )


def _format_verb(crossing: Crossing) -> str:
    return "enter" if crossing.entered else "leave"


def _report_crossing(
    db: Db, fence: Fence, position: KitPosition, crossing: Crossing, alarm: int | None, now: float
) -> int:
    """Raise an alarm about the crossing, or add the crossing to the open alarm. Return the alarm's
    id.
    """
    message = Message(describe_crossing(fence.name, position, crossing, now))
    posting = Posting(
        position.workspace, position.member, message, int(now), SOS_PRIORITY, alarm=True
    )
    incident = (
        None if alarm is None else sos.find_incident(db, position.workspace, alarm, locked=True)
    )
    if incident is not None and incident.state != SosState.CLOSED:
        ledger.announce_addition(db, posting, position.device, incident.id, now)
        return incident.id
    return ledger.raise_alarm(db, posting, position.device, now, ALARM_KIND)


def describe_crossing(name: str, position: KitPosition, crossing: Crossing, now: float) -> str:
    """Return a text with the times and sides of both positions of a crossing."""
    now_side, other_side = ("inside", "outside") if crossing.entered else ("outside", "inside")
    place = f"{position.position.latitude:.5f} {position.position.longitude:.5f}"
    before = "the one before"
    if crossing.unclear_between:
        before = "those in between do not show the side; the last one that does"
    delay_text = f"; it came at {format_time(now, now)}" if now - crossing.at > LATE_S else ""
    return (
        f"{position.name}'s position of {format_time(crossing.at, now)} was {now_side} '{name}'"
        f" ({place}); {before}, of {format_time(crossing.before, now)}, {other_side}{delay_text}"
    )
