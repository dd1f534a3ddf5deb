"""Raises an SOS for the 911 alert of a TAK phone that the hub's TAK bridge has received.

The phone becomes a tracker with the phone's callsign as its name, so its SOS follows the rules of
trackers. Until a person closes the SOS, further alerts notify no one again. The SOS goes to kits
only over their links, and costs nothing. A phone's cancel is only shown in the timeline of the
incident, because a uid is not authenticated.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

from fieldagent.extensions.tak.events import PhoneAlert, TakUnit
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.field import texts_to_kits, trackers
from fieldagent.hub.field.trackers import TrackerReport
from fieldagent.hub.records import sos
from fieldagent.hub.store.contract import Db
from fieldagent.package.coordinates import is_zero_position

SOURCE = "TAK"
"""Source of the devices that this module adds."""
PHONES_MAX = 200
"""Largest number of phones in a workspace for which the hub adds a device each. All further phones
share one device."""
OTHER_PHONES = "other phones (TAK)"
SHARED_TRACKER = "tak:"
"""Id of the tracker that further phones share."""


def accept_alert(
    db: Db, workspace: int, member: int | None, alert: PhoneAlert, now: float
) -> ItemResult:
    """Process an alert or its cancel. `member` is the user of the phone, or None if the user is
    unknown. The first alert of a phone adds a device for the phone.
    """
    ident = f"tak:{alert.sender.uid}"
    if trackers.find_tracker(db, workspace, ident) is None:
        ((alert_count,),) = db.execute(
            "SELECT count(*) FROM tracker WHERE workspace = ? AND ident LIKE ?",
            *(workspace, f"{SHARED_TRACKER}%"),
        )
        if alert_count >= PHONES_MAX:
            ident = SHARED_TRACKER
        if trackers.find_tracker(db, workspace, ident) is None:
            sender_member = member
            if sender_member is None or ident == SHARED_TRACKER:
                sender_member = _choose_member(db, workspace, now)
            _add(db, workspace, sender_member, alert.sender, ident, now)
    tracker = trackers.find_tracker(db, workspace, ident)
    if tracker is None:
        return ItemResult.REFUSED
    incident = trackers.find_open_incident(db, tracker.device)
    if alert.cancels and tracker.alarm and incident is not None:
        detail = f"{alert.sender.callsign} has cancelled the 911 alert on the phone"
        sos.record_event(db, incident, "note", now, name=alert.sender.callsign, detail=detail)
    point = alert.point
    place = None
    if point.is_known and not is_zero_position(point.latitude, point.longitude):
        place = {"latitude": point.latitude, "longitude": point.longitude}
    alarm = "" if alert.cancels else "sos"
    return trackers.process_tracker_report(
        db, workspace, TrackerReport(ident, None, place, alarm), now, bearer=SOURCE
    )


def _add(db: Db, workspace: int, member: int, phone: TakUnit, ident: str, now: float) -> None:
    """Add the phone as a tracker. If another device has its callsign as name, the tracker gets
    another name.
    """
    by_uid = f"{phone.callsign} {sha256(phone.uid.encode()).hexdigest()[:8]}"
    for name in (OTHER_PHONES,) if ident == SHARED_TRACKER else (phone.callsign, by_uid):
        with suppress(Refused):
            trackers.add_tracker(db, workspace, member, name, ident, now=now)
            return


def _choose_member(db: Db, workspace: int, now: float) -> int:
    """Return the member to whom phones of unknown people belong."""
    voice_rows = db.execute(
        "SELECT member.id FROM member JOIN membership ON membership.member = member.id"
        " WHERE workspace = ? AND type = 'Integration' AND name = ? ORDER BY member.id LIMIT 1",
        *(workspace, OTHER_PHONES),
    )
    return (
        int(voice_rows[0][0])
        if voice_rows
        else texts_to_kits.add_text_author(db, workspace, OTHER_PHONES, now)
    )
