"""Trackers: devices without a kit that report their own position. This module processes the
reports.

1. The hub counts a report of an unknown tracker, logs the first, and otherwise ignores it.
2. The map shows each position immediately. People, kits and webhooks get one position per `every`
   seconds. Kits get it only over their links, because a tracker's position is not worth a credit.
3. An alarm in `ALARMS` raises one SOS. Until a person closes this SOS, later reports of the tracker
   are added to it. Any other alarm is sent as a message once, until it changes or ends. A report
   can contain several alarms, each of which is processed separately.

The hub cannot send anything to a tracker. The text of the tracker's SOS explains this.

Each function is one operation for `Store.commit`, `read` or `once`, or a part of such an operation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from unicodedata import normalize

from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.field import check_in, positions
from fieldagent.hub.part import KitPosition
from fieldagent.hub.records import contact, ledger, sos
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.records.sos import SosState
from fieldagent.hub.store.contract import Db, insert
from fieldagent.package.coordinates import DatedPlace
from fieldagent.package.package import (
    SOS_PRIORITY,
    TRACKER,
    Location,
    Message,
    Waypoint,
    get_date,
)
from fieldagent.package.reading import ITEMS
from fieldagent.package.writing import format_clock_time
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import Entry

ALARMS = frozenset({"sos", "falldown", "accident"})
"""Names of Traccar's `Position` alarms for a person who needs help, in the form that
`_find_distress_names` compares."""
BEARER = "tracker"
"""Bearer of the reports of a tracker that sends them to the hub itself, as shown to people."""
BY_KIT = "APRS"
"""Bearer of the reports of a tracker that a kit hears with a separate radio, such as an APRS
station."""
POSITION_INTERVAL_S = 60
"""Default number of seconds between two positions of a tracker that the hub sends to people."""
PRIORITY = 10
FREE_REASON = "waits for a link: from a tracker"
STALE, EXPIRY_S = 3_600.0, 86_400.0
"""Seconds after which a position (STALE) or a message (EXPIRY_S) is no longer sent to kits."""
ALARM_MAX, UNREAD_MAX = 40, 160
"""Largest numbers of characters of an alarm and of the field `unread`."""
CLOCK_AHEAD_MAX_S = 300.0
"""Seconds by which a tracker's clock may be ahead. The time of a position that is further ahead is
replaced by the present time."""
_MEMBERS = {name: field.attribute for name, field in ITEMS["location"].members.items()}


class TrackerReport(NamedTuple):
    """One report of a tracker, with a position, alarms or both."""

    ident: str
    """Id that the tracker itself reports."""
    at: datetime | None = None
    """Time of the position; None means the present time."""
    place: Mapping[str, float] | None = None
    """Fields of a location (`package.reading`) in their units; None if the report has no
    position."""
    alarm: str = ""
    """Alarms such as `sos` as the tracker sent them, separated by commas (`join_alarms`)."""
    accuracy: float = 0.0
    """Metres by which the position may be wrong; 0 if unknown."""
    unread: str = ""
    """Errors in the rest of an alarm, for people; empty if there is none."""


class Tracker(NamedTuple):
    device: int
    workspace: int
    member: int
    name: str
    every: int
    alarm: str
    at: float
    sent_at: float


def add_tracker(
    db: Db,
    workspace: int,
    member: int,
    name: str,
    ident: str,
    *,
    interval_s: int = POSITION_INTERVAL_S,
    now: float,
) -> int:
    """Add a tracker as a device that cannot receive messages, and return the device's id. The
    device belongs to `member`. Raises Refused with the reason.
    """
    known_rows = db.execute(
        "SELECT device.name FROM tracker JOIN device ON device.id = device"
        " WHERE tracker.workspace = ? AND ident = ?",
        workspace,
        ident,
    )
    if known_rows:
        raise Refused(f"the tracker {ident!r} is {known_rows[0][0]!r} already in that workspace")
    device, _ = directory.add_device(db, workspace, member, directory.NewDevice(name), now=now)
    db.execute("UPDATE device SET link_token = NULL WHERE id = ?", device)
    columns = ("device", "workspace", "ident", "every")
    insert(db, "tracker", columns, [(device, workspace, ident, interval_s)])
    return device


def find_tracker(db: Db, workspace: int, ident: str) -> Tracker | None:
    """Return the tracker that reports the id `ident`, and lock its row. Return None if the tracker
    is unknown.
    """
    rows = db.execute(
        "SELECT device, tracker.workspace, member, name, every, alarm, at, told FROM tracker"
        " JOIN device ON device.id = device WHERE tracker.workspace = ? AND ident = ?"
        " AND disabled IS NULL" + db.for_update("tracker"),
        workspace,
        ident,
    )
    return Tracker(*rows[0]) if rows else None


def _store_state(db: Db, tracker: Tracker, *, alarm: str, at: float, sent_at: float) -> None:
    """Store the alarm and the time of a tracker's last report, and the time of the last position
    that was sent to people.
    """
    db.execute(
        "UPDATE tracker SET alarm = ?, at = ?, told = ? WHERE device = ?",
        *(alarm, at, sent_at, tracker.device),
    )


def find_open_incident(db: Db, device: int) -> int | None:
    """Return the id of the device's SOS that is not closed, or None."""
    rows = db.execute(
        "SELECT id FROM sos WHERE device = ? AND kind = ? AND state <> ? ORDER BY id DESC LIMIT 1",
        *(device, "sos", SosState.CLOSED),
    )
    return int(rows[0][0]) if rows else None


def store_kit_report(db: Db, workspace: int, entry: Entry, now: float) -> bool:
    """If the item is the position of a known tracker that a kit has heard, store the position and
    return True. Otherwise return False, and the caller treats the item as an ordinary item of the
    kit.

    The item with the position of a tracker is a waypoint. Its author is `tracker:` and the id that
    the tracker reports. A callsign is not authenticated, so these reports never raise an alarm.
    """
    point, author = entry.content, entry.author
    if not isinstance(point, Waypoint) or not isinstance(author, str) or entry.sos:
        return False
    if not author.startswith(TRACKER):
        return False
    at = get_date(point, entry.time)
    position = {"latitude": point.latitude, "longitude": point.longitude}
    report = TrackerReport(author.removeprefix(TRACKER), at, position)
    return (
        process_tracker_report(db, workspace, report, now, bearer=BY_KIT) is not ItemResult.REFUSED
    )


def process_tracker_report(
    db: Db, workspace: int, report: TrackerReport, now: float, *, bearer: str = BEARER
) -> ItemResult:
    """Process one report. After this function returns, the report is stored and can be
    acknowledged.
    """
    # Check this unauthenticated text first, because PostgreSQL does not accept NUL characters.
    tracker = find_tracker(db, workspace, report.ident) if report.ident.isprintable() else None
    if tracker is None:
        return ItemResult.REFUSED
    alarms, before = _list_alarms(report.alarm), _list_alarms(tracker.alarm)
    alarm = ",".join(alarms)
    at = now if report.at is None else report.at.timestamp()
    at = now if at > now + CLOCK_AHEAD_MAX_S else min(at, now)
    if alarm == tracker.alarm and at <= tracker.at:
        return ItemResult.REPEATED
    location = None if report.place is None else _make_location(report.place, at)
    contact.record_contact(db, tracker.device, bearer, now)
    _store_position(db, tracker, location, at, report.accuracy, now)
    incident = find_open_incident(db, tracker.device)
    sent_at = tracker.sent_at
    new_alarms = [each for each in alarms if each not in before]
    distress = {name for each in alarms for name in _find_distress_names(each)}
    distress -= {name for each in before for name in _find_distress_names(each)}
    if distress and incident is None:
        distress_text = _format_distress(tracker, report, ", ".join(alarms), location, at)
        incident = _raise(db, tracker, distress_text, at, now)
    elif new_alarms:
        _add_report(
            db, tracker, Message(f"{tracker.name}: {', '.join(new_alarms)}"), at, incident, now
        )
    if location is not None and at >= sent_at + tracker.every:
        _add_report(db, tracker, location, at, incident, now)
        sent_at = at
    _store_state(db, tracker, alarm=alarm, at=max(at, tracker.at), sent_at=sent_at)
    return ItemResult.TAKEN


def _make_location(place: Mapping[str, float], at: float) -> Location:
    members: dict[str, Any] = {_MEMBERS[name]: value for name, value in place.items()}
    return Location(**members, timestamp=datetime.fromtimestamp(int(at), UTC))


def _store_position(
    db: Db, tracker: Tracker, place: Location | None, at: float, accuracy: float, now: float
) -> None:
    if place is not None:
        contact.store_position(db, tracker.device, place, int(at), now)
        dated_place = DatedPlace(place.latitude, place.longitude, at, accuracy)
        owner = tracker.device, tracker.workspace, tracker.member, tracker.name
        positions.act_on_positions(db, [KitPosition(*owner, dated_place)], now)
    check_in.record_item(db, tracker.device, now)


def _format_distress(
    tracker: Tracker, report: TrackerReport, alarm: str, place: Location | None, at: float
) -> str:
    position_text = "without a position"
    if place is not None:
        position_text = f"at {place.latitude:.5f} {place.longitude:.5f}"
    unread = f" Not read: {_make_readable(report.unread, UNREAD_MAX)}." if report.unread else ""
    return (
        f"Alarm {alarm} of the tracker {tracker.name}, {position_text}, {format_clock_time(at)}."
        f"{unread}"
        " No answer can be sent to a tracker: contact its carrier by other means."
    )


def _raise(db: Db, tracker: Tracker, text: str, at: float, now: float) -> int:
    """Raise an SOS and return its id. The hub handles it like the SOS of a kit, but kits get its
    text only over their links.
    """
    posting = Posting(
        tracker.workspace, tracker.member, Message(text), int(at), SOS_PRIORITY, sos=True
    )
    return ledger.raise_alarm(db, posting, tracker.device, now, "sos", free=FREE_REASON)


def _add_report(
    db: Db,
    tracker: Tracker,
    item: Location | Message,
    at: float,
    incident: int | None,
    now: float,
) -> None:
    """Add a position or a message. A kit without a link later receives only the newest
    position.
    """
    is_place = isinstance(item, Location)
    posting = Posting(
        tracker.workspace,
        tracker.member,
        item,
        int(at),
        PRIORITY,
        collapse_key=-tracker.device if is_place else None,
        expires=now + (STALE if is_place else EXPIRY_S),
    )
    item_id = ledger.add_unnumbered_item(db, posting, tracker.device, now, free=FREE_REASON)
    if incident is not None:
        sos.add_item(db, item_id, incident)


def _list_alarms(text: str) -> list[str]:
    """Return the alarms of a report without duplicates, limited to `ALARM_MAX` characters. Distress
    alarms come first, so that other alarms cannot displace them.
    """
    alarm_names = [_make_readable(each.strip(" "), ALARM_MAX) for each in text.split(",")]
    by_distress = sorted(
        filter(None, dict.fromkeys(alarm_names)), key=lambda each: not _find_distress_names(each)
    )
    alarms: list[str] = []
    for each in by_distress:
        if len(",".join([*alarms, each])) <= ALARM_MAX:
            alarms.append(each)
    return alarms


def _find_distress_names(alarm: str) -> set[str]:
    """Return the names in `ALARMS` that an alarm contains. For example, an alarm may be `SOS`,
    `fall_down` or `SOS button`. Case and width of letters are ignored.
    """
    folded = normalize("NFKC", alarm).casefold()
    letters = "".join(each for each in folded if each.isalpha())
    return {*ALARMS} & {letters, *re.findall(r"[^\W\d_]+", folded)}


def _make_readable(text: str, limit: int) -> str:
    """Return the text of an anonymous sender as one printable line of at most `limit`
    characters.
    """
    return "".join(each if each.isprintable() else "?" for each in text)[:limit]
