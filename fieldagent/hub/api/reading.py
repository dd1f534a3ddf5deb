"""Reads items, devices and deliveries for callers who may see them, newest first.

Each read is short, however much data there is. It uses an index, examines a limited number of rows,
and returns the place where the next read continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fieldagent.hub.access import imei_claims
from fieldagent.hub.access.caller import ADMINISTRATOR, Caller
from fieldagent.hub.api.standing import STATES, find_shown_state, list_reached
from fieldagent.hub.field import check_in
from fieldagent.hub.records import alarm, kit_report, lease, rebuild, workspace_log
from fieldagent.hub.records.ledger import WAITING_STATES
from fieldagent.hub.records.operator_trouble import DEVICE_REASON_SQL, REASON_SQL
from fieldagent.hub.records.stored_entry import decode_stored_entry, parse_stored_object
from fieldagent.hub.records.usage import format_day
from fieldagent.hub.store.contract import Db, make_marks, select
from fieldagent.package.package import Item, Location, get_date
from fieldagent.package.payload import Identity, make_estimated_position, make_event
from fieldagent.package.tracks import PlacedPoint
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

END = 2**63 - 1
"""An id that is higher than every row id."""
LOOKED_AT = 1_000
"""Largest number of items that one read examines. This takes 25 ms if the items are large."""
BYTES_MAX = 1_000_000
"""Largest total size of the bodies on one page, in bytes. A page always contains the first item."""


@dataclass(frozen=True, slots=True)
class ItemFilter:
    """Filter on the items that a caller may see. A field that is None or empty selects all
    items.
    """

    sender: int | None = None
    device: int | None = None
    """Device that sent or receives the item."""
    kind: str | None = None
    text: str = ""
    sos: bool | None = None
    pushed: bool | None = None
    since: float | None = None
    until: float | None = None
    request_id: str | None = None


class FoundItems(NamedTuple):
    """Ids of items, and the id below which there may be more items."""

    numbers: list[int]
    following: int | None


class _Conditions:
    """Conditions of an SQL statement, with their parameters."""

    def __init__(self) -> None:
        self.sql: list[str] = []
        self.parameters: list[Any] = []

    def add(self, sql: str, *parameters: Any) -> None:
        self.sql.append(sql)
        self.parameters += parameters

    def __str__(self) -> str:
        return " AND ".join(self.sql) or "1 = 1"


def find_items(
    db: Db, caller: Caller, item_filter: ItemFilter, before: int, limit: int
) -> FoundItems:
    """Find items in one read, which examines at most `LOOKED_AT` items of one index."""
    first = 0
    # Use one bound per side, because with two SQLite may use the less selective bound for the
    # index.
    if item_filter.until is not None:
        last = _find_time_bound(db, item_filter.until, up=False)
        before = min(before, 0 if last is None else last + 1)
    if item_filter.since is not None:
        first = (
            END if (bound := _find_time_bound(db, item_filter.since, up=True)) is None else bound
        )
    if first >= before:
        return FoundItems([], None)
    index = _choose_index_conditions(caller, item_filter, first, before)
    edge = None
    if item_filter.device is not None:
        numbers, edge = _list_device_items(db, caller.workspace, item_filter.device, before)
        index.add(f"id IN ({make_marks(numbers)})" if numbers else "1 = 0", *numbers)
    inner = (
        "SELECT id, sender, target, team, kind, words, sos, accepted, source_device, request_id,"
        f" length(body) AS size FROM item WHERE {index} ORDER BY id DESC LIMIT {LOOKED_AT}"
    )
    which = _make_row_conditions(caller, item_filter)
    rows = db.execute(
        f"SELECT id, size FROM ({inner}) AS looked WHERE {which} ORDER BY id DESC LIMIT ?",
        *index.parameters,
        *which.parameters,
        limit + 1,
    )
    matches: list[int] = []
    size = 0
    for id_, bytes_ in rows:
        size += bytes_
        if len(matches) == limit or (matches and size > BYTES_MAX):
            return FoundItems(matches, matches[-1])
        matches.append(id_)
    if item_filter.device is not None:
        return FoundItems(matches, edge)
    return FoundItems(
        matches, _find_last(db, f"SELECT id FROM item WHERE {index} ORDER BY id", index.parameters)
    )


def _list_device_items(
    db: Db, workspace: int, device: int, before: int
) -> tuple[list[int], int | None]:
    """Return the items that a device sent or receives, except items of other kits to everyone. Also
    return the id below which there may be more items.
    """
    sent = db.execute(
        "SELECT id, source_device FROM item WHERE workspace = ? AND id < ? AND sender ="
        " (SELECT member FROM device WHERE id = ? AND workspace = ?)"
        f" ORDER BY id DESC LIMIT {LOOKED_AT}",
        *(workspace, before, device, workspace),
    )
    incoming = db.execute(
        "SELECT item, target IS NOT NULL OR team IS NOT NULL OR source_device IS NULL FROM delivery"
        " JOIN item ON item.id = delivery.item WHERE device = ? AND item < ? AND from_log = 0"
        f" ORDER BY item DESC LIMIT {LOOKED_AT}",
        *(device, before),
    )
    ends = [min(row[0] for row in rows) for rows in (sent, incoming) if len(rows) == LOOKED_AT]
    edge = max(ends, default=None)
    numbers = [id_ for id_, source in sent if source == device] + [
        id_ for id_, is_meant in incoming if is_meant
    ]
    numbers = sorted((each for each in numbers if edge is None or each >= edge), reverse=True)
    # Cut the result, because the two lists together can exceed the limit of one read.
    return numbers[:LOOKED_AT], numbers[LOOKED_AT - 1] if len(numbers) > LOOKED_AT else edge


def _find_last(db: Db, sql: str, parameters: Sequence[Any]) -> int | None:
    """Return the id of the last row that one read may examine, or None if there are fewer rows."""
    rows = db.execute(f"{sql} DESC LIMIT 1 OFFSET {LOOKED_AT - 1}", *parameters)
    return int(rows[0][0]) if rows else None


def _choose_index_conditions(
    caller: Caller, item_filter: ItemFilter, first: int, before: int
) -> _Conditions:
    """Return the conditions for the most selective index."""
    index = _Conditions()
    index.add("workspace = ? AND id >= ? AND id < ?", caller.workspace, first, before)
    if item_filter.request_id is not None:
        index.add("request_id = ?", item_filter.request_id)
    elif item_filter.sos:
        index.add("sos = 1")
    elif item_filter.pushed:
        index.add("source_device IS NULL")
    elif item_filter.sender is not None:
        index.add("sender = ?", item_filter.sender)
    elif item_filter.kind is not None:
        index.add("kind = ?", item_filter.kind)
    return index


def _find_time_bound(db: Db, moment: float, *, up: bool) -> int | None:
    """Return the first item at or after `moment` if `up` is True, otherwise the last item at or
    before `moment`. The item may be of any workspace. Restored items are old but have new ids, so
    they extend the bound.
    """
    beyond, order, edge = (">=", "", "min") if up else ("<=", " DESC", "max")
    rows = db.execute(
        f"SELECT id FROM (SELECT id FROM item WHERE accepted {beyond} ? AND restored IS NULL"
        f" ORDER BY accepted{order}, id{order} LIMIT 1) AS bound"
        f" UNION ALL SELECT {edge}(id) FROM item WHERE restored IS NOT NULL",
        moment,
    )
    bounds = [int(id_) for (id_,) in rows if id_ is not None]
    return (min(bounds) if up else max(bounds)) if bounds else None


IS_SEEN_BY = (
    "(sender = ? OR target = ? OR (target IS NULL AND team IS NULL)"
    " OR team IN (SELECT team FROM team_member WHERE member = ?))"
)
"""SQL condition: a member who may not see everything may see the item."""


def _make_viewer_conditions(viewer: int | None) -> _Conditions:
    which = _Conditions()
    if viewer is not None:
        which.add(IS_SEEN_BY, viewer, viewer, viewer)
    return which


def _make_row_conditions(caller: Caller, item_filter: ItemFilter) -> _Conditions:
    """Return the conditions on the rows that a read examines. They also exclude rows that are out
    of order because of a wrong clock.
    """
    which = _make_viewer_conditions(None if caller.sees_all else caller.member)
    if item_filter.sender is not None:
        which.add("sender = ?", item_filter.sender)
    if item_filter.kind is not None:
        which.add("kind = ?", item_filter.kind)
    if item_filter.sos is not None:
        which.add("sos = 1" if item_filter.sos else "sos <> 1")
    if item_filter.pushed is not None:
        which.add(f"source_device IS {'' if item_filter.pushed else 'NOT '}NULL")
    if item_filter.since is not None:
        which.add("accepted >= ?", item_filter.since)
    if item_filter.until is not None:
        which.add("accepted <= ?", item_filter.until)
    if item_filter.text:
        pattern = item_filter.text.casefold()
        for special in "!%_":
            pattern = pattern.replace(special, f"!{special}")
        which.add("words LIKE ? ESCAPE '!'", f"%{pattern}%")
    return which


def list_next_items(
    db: Db, workspace: int, viewer: int | None, after_place: int, limit: int
) -> list[tuple[int, float]]:
    """Return the ids and Unix times of the next items after the id `after_place`, in ascending
    order, that the member `viewer` may see. If `viewer` is None, all items are visible.
    """
    which = _make_viewer_conditions(viewer)
    rows = db.execute(
        f"SELECT id, accepted FROM item WHERE workspace = ? AND id > ? AND {which}"
        " ORDER BY id LIMIT ?",
        workspace,
        after_place,
        *which.parameters,
        limit,
    )
    return [(number, float(accepted)) for number, accepted in rows]


class ItemMarks(NamedTuple):
    """Warnings about an item for its reader."""

    unauthenticated: bool
    """True for an SOS whose sender is not authenticated."""
    revoked: float | None
    """For an SOS: Unix time when its kit was revoked; None if its kit is not revoked."""
    restored: bool
    """True if a kit sent the item back after the database had lost it."""
    alarm: bool = False
    """True for an alarm that the hub itself raised, which is not an SOS."""


class ReadItem(NamedTuple):
    """An item in the form in which callers read it."""

    number: int
    request_id: str
    sender: Identity
    device: str | None
    target: int | None
    accepted: float
    sos: bool
    marks: ItemMarks
    moment: datetime
    item: Item
    estimate: str
    to: str
    """JSON of the addressee; empty if the item is for everyone."""
    wants_receipt: bool
    reached: list[dict[str, Any]]

    def make_placed(self) -> PlacedPoint | None:
        """Return the position in a location item. Return None if the item is not a location or its
        body is damaged.
        """
        if not isinstance(self.item, Location):
            return None
        return PlacedPoint(
            self.request_id, self.sender, self.device, self.moment, self.item, self.sos
        )

    def encode(self) -> dict[str, Any]:
        """Return the item in the form of the read API. `accepted` is a Unix time. `event` is the
        item in the form of payloads.
        """
        event = make_event(self.item, self.moment)
        if (estimate := parse_stored_object(self.estimate, make_estimated_position)) is not None:
            event["estimatedPosition"] = estimate
        return {
            "id": self.request_id,
            "sender": {"id": self.sender.id, "name": self.sender.name, "type": self.sender.type},
            "device": self.device,
            "targetUserId": None if self.target is None else str(self.target),
            "accepted": self.accepted,
            "sos": self.sos,
            "alarm": self.marks.alarm,
            "unauthenticated": self.marks.unauthenticated,
            "revokedSince": self.marks.revoked,
            "restored": self.marks.restored,
            "to": parse_stored_object(self.to, dict[str, Any]),
            "receipt": "read" if self.wants_receipt else None,
            "reached": self.reached,
            "event": event,
        }


def list_items(db: Db, numbers: Sequence[int]) -> list[ReadItem]:
    """Return the items with these ids, newest first."""
    if not numbers:
        return []
    rows = db.execute(
        "SELECT item.id, request_id, sender, member.name, member.type, device.name, target,"
        " addressee, asks, accepted, sos, unauthenticated, item.revoked, restored, estimate, body"
        " FROM item JOIN member ON member.id = item.sender"
        " LEFT JOIN device ON device.id = item.source_device"
        f" WHERE item.id IN ({', '.join('?' * len(numbers))}) ORDER BY item.id DESC",
        *numbers,
    )
    steps = list_reached(db, numbers)
    return [_read(row, steps[row[0]]) for row in rows]


def _read(row: Sequence[Any], steps: list[dict[str, Any]]) -> ReadItem:
    *sender_columns, accepted, sos, unauthenticated, revoked, restored, estimate, body = row
    number, request_id, sender, name, type_, device, target, addressee, wants_receipt = (
        sender_columns
    )
    entry = decode_stored_entry(body)
    content = entry.content
    assert isinstance(content, Item), "the ledger holds items alone"
    return ReadItem(
        number,
        request_id,
        Identity(str(sender), name, type_),
        device,
        target,
        float(accepted),
        sos == 1,
        ItemMarks(
            bool(unauthenticated),
            None if revoked is None else float(revoked),
            restored is not None,
            alarm=sos == alarm.ITEM,
        ),
        get_date(content, entry.time),
        content,
        estimate,
        addressee,
        bool(wants_receipt),
        steps,
    )


def list_webhook_deliveries(db: Db, item: int) -> list[dict[str, Any]]:
    """Return the deliveries of an item to webhooks, in the order of the webhooks' ids."""
    rows = db.execute(
        "SELECT webhook, state, attempts, reason FROM webhook_delivery WHERE item = ?"
        " ORDER BY webhook",
        item,
    )
    names = ("webhook", "state", "attempts", "reason")
    return [dict(zip(names, row, strict=True)) for row in rows]


_FROM_AWAITED = (
    f"FROM device JOIN item ON {workspace_log.IS_AWAITED} WHERE device.id = ?"
    f" AND {workspace_log.NUMBER} < ? ORDER BY item.place"
)
_TO_DEVICE = (
    f"SELECT * FROM (SELECT item, sequence, state, way, ended, {REASON_SQL} AS reason FROM delivery"
    f" WHERE device = ? AND sequence < ? ORDER BY sequence DESC LIMIT {LOOKED_AT}) AS made"
    " UNION ALL SELECT item, sequence, state, NULL, ended, reason FROM"
    f" (SELECT item.id AS item, {workspace_log.NUMBER} AS sequence,"
    f" {', '.join(workspace_log.STATE)} {_FROM_AWAITED} DESC LIMIT {LOOKED_AT}) AS awaited"
)
"""SQL that selects the existing and future deliveries to a device below one of the device's item
numbers."""


def list_deliveries(
    db: Db, caller: Caller, device: int, state: str | None, before: int, limit: int, now: float
) -> tuple[list[dict[str, Any]], int | None]:
    """Return the deliveries to one device, newest first. Also return the item number below which
    there may be more.
    """
    which = _Conditions()
    if state is not None:
        states = [each for each, shown_state in STATES.items() if shown_state == state]
        which.add(f"state IN ({', '.join('?' * len(states))})", *states)
    if not caller.sees_all:
        which.add(IS_SEEN_BY, caller.member, caller.member, caller.member)
    looked = (device, before, now, now, now, device, before)
    rows = db.execute(
        "SELECT sequence, request_id, kind, sos, accepted, state, way, ended, reason"
        f" FROM ({_TO_DEVICE}) AS looked JOIN item ON item.id = looked.item WHERE {which}"
        " ORDER BY sequence DESC LIMIT ?",
        *looked,
        *which.parameters,
        limit + 1,
    )
    passed_query = f"SELECT {workspace_log.NUMBER} {_FROM_AWAITED}"
    end = _find_last(db, passed_query, (device, before))
    if end is not None:  # Between `end` and the first existing row there may be more items.
        rows = [row for row in rows if row[0] >= end]
    entries = [
        {
            "item": request_id,
            "kind": kind or None,
            "sos": sos == 1,
            "accepted": float(accepted),
            "state": find_shown_state(stored_state),
            "over": bearer,
            "ended": None if ended_at is None else float(ended_at),
            "reason": reason,
        }
        for _, request_id, kind, sos, accepted, stored_state, bearer, ended_at, reason in rows[
            :limit
        ]
    ]
    if len(rows) > limit:
        return entries, rows[limit - 1][0]
    if end is not None:
        return entries, end
    passed_query = (
        "SELECT sequence FROM delivery WHERE device = ? AND sequence < ? ORDER BY sequence"
    )
    return entries, _find_last(db, passed_query, (device, before))


WAITING_SHOWN = 1_000


_DEVICE = {
    "id": "device.id",
    "name": "device.name",
    "member": "device.member",
    "member name": "member.name",
    "imei": "imei",
    "operator": "operator",
    "disabled": "device.disabled",
    "is linked": lease.IS_LINKED,
    "contact": "contact.at",
    "way": "contact.way",
    "version": "contact.version",
    "latitude": "contact.latitude",
    "longitude": "contact.longitude",
    "position": "contact.position_at",
    "altitude": "contact.altitude",
    "speedOverGround": "contact.speed",
    "courseOverGround": "contact.course",
    "key trouble": "key_trouble",
    "waiting": "(SELECT count(*) FROM (SELECT 1 FROM delivery WHERE delivery.device = device.id"
    f" AND delivery.state IN {WAITING_STATES} LIMIT {WAITING_SHOWN}) AS waits)",
    "awaited": f"(SELECT count(*) FROM ({workspace_log.SELECT_AWAITED} LIMIT {WAITING_SHOWN}) AS"
    " awaited)",
    "last update": "last_update",
    "settings": kit_report.SETTINGS,
    "relay": "relay",
    "tagged": "air_key IS NOT NULL",
    **check_in.SHOWN_COLUMNS,
    "modems": "modems",
    "modems at": "modems_at",
    **rebuild.SHOWN_COLUMNS,
    "satellite trouble": DEVICE_REASON_SQL,
    "contested": imei_claims.CONTESTED_TEXT,
    "per day": "credits_per_day",
    "reserve": "sos_reserve",
    "spent": "(SELECT credits FROM spent WHERE spent.device = device.id AND day = ?)",
    "revoked": "device.revoked",
    "revoked why": "device.revoked_why",
}
_DEVICES = (
    "FROM device JOIN member ON member.id = device.member"
    " LEFT JOIN contact ON contact.device = device.id"
    " LEFT JOIN check_in ON check_in.device = device.id"
)


def list_devices(
    db: Db, caller: Caller, before: int, limit: int, now: float
) -> tuple[list[dict[str, Any]], int | None]:
    """Return `limit` devices with ids below `before`, highest ids first, in the form of the API.
    Also return the id below which there are more devices, or None.
    """
    rows = select(
        db,
        _DEVICE,
        f"{_DEVICES} WHERE device.workspace = ? AND device.id < ? ORDER BY device.id DESC LIMIT ?",
        *(now, now, format_day(now)),
        *(caller.workspace, before, limit + 1),
    )
    entries = [_encode_device(row, caller, now) for row in rows[:limit]]
    return entries, rows[limit - 1]["id"] if len(rows) > limit else None


def _encode_device(row: Mapping[str, Any], caller: Caller, now: float) -> dict[str, Any]:
    revoked = position = account = None
    if row["revoked"] is not None:
        revocation_reason = row["revoked why"] if caller.sees_all else ""
        revoked = {"since": float(row["revoked"]), "why": revocation_reason}
    if row["position"] is not None:
        place = {name: row[name] for name in ("latitude", "longitude")}
        names = ("altitude", "speedOverGround", "courseOverGround")
        known_numbers = {name: float(row[name]) for name in names if row[name] is not None}
        position = {**place, "at": float(row["position"]), **known_numbers}
    if row["per day"] is not None:
        limits = {"perDay": row["per day"], "sosReserve": row["reserve"]}
        account = {**limits, "spent": row["spent"] or 0}
    return {
        "id": row["id"],
        "name": row["name"],
        "user": {"id": str(row["member"]), "name": row["member name"]},
        "imei": row["imei"] if caller.sees_all else None,
        "operator": row["operator"],
        "disabled": row["disabled"] is not None,
        "revoked": revoked,
        "relay": bool(row["relay"]),
        "tagged": bool(row["tagged"]),
        "linked": bool(row["is linked"]),
        "lastContact": None if row["contact"] is None else float(row["contact"]),
        "over": row["way"],
        "version": row["version"] or None,
        "lastUpdate": row["last update"] or None,
        "settings": row["settings"],
        "position": position,
        "modems": kit_report.list_modems(row["modems"], row["modems at"]),
        "waiting": min(row["waiting"] + row["awaited"], WAITING_SHOWN),
        "checkIn": check_in.describe_check_in(row),
        "trouble": row["contested"] or row["key trouble"] or None,
        "satelliteTrouble": row["satellite trouble"],
        "rebuild": rebuild.describe_rebuild(row, now),
        "credits": account,
    }


def list_users(
    db: Db, caller: Caller, before: int, limit: int
) -> tuple[list[dict[str, Any]], int | None]:
    """Return the members of the workspace. Each has the number of their devices in use."""
    rows = db.execute(
        "SELECT member.id, name, type, role, email, over_satellite, all_positions, disabled,"
        " (SELECT count(*)"
        " FROM device WHERE device.member = member.id AND device.workspace = membership.workspace"
        " AND device.disabled IS NULL) FROM member JOIN membership ON membership.member = member.id"
        " WHERE workspace = ? AND member.id < ? ORDER BY member.id DESC LIMIT ?",
        caller.workspace,
        before,
        limit + 1,
    )
    entries = [
        {
            "id": str(id_),
            "name": name,
            "type": type_,
            "role": role,
            "email": email if caller.role == ADMINISTRATOR else None,
            "overSatellite": bool(over_satellite),
            "allPositions": bool(all_positions),
            "disabled": disabled is not None,
            "devices": devices,
        }
        for id_, name, type_, role, email, over_satellite, all_positions, disabled, devices in rows[
            :limit
        ]
    ]
    return entries, rows[limit - 1][0] if len(rows) > limit else None


def is_device_known(db: Db, caller: Caller, device: int) -> bool:
    """Return True if the device is in the caller's workspace. The device may be disabled."""
    return bool(
        db.execute("SELECT 1 FROM device WHERE id = ? AND workspace = ?", device, caller.workspace)
    )
