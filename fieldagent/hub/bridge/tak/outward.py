"""What goes to a TAK server: units, messages, markers and alerts, as events. Decides by what it is
told alone.

| ours | there | when |
|---|---|---|
| where a kit was last | its user's unit | on change, and again at half of its time |
| a message to a person there | GeoChat to them | until their phone has confirmed it |
| a message to everybody | GeoChat to all | once |
| a waypoint to everybody | a marker | once |
| an SOS that nobody has answered | 911 alert | every 10 s for a minute, then each minute |
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from math import cos, radians
from typing import NamedTuple

from fieldagent import __version__
from fieldagent.hub.bridge.tak.records import FreshItem, KitUser, OpenAlert, OutEvent
from fieldagent.package.package import Message, Waypoint
from fieldagent.wire import tak
from fieldagent.wire.cot import NOWHERE, CotEvent, CotPoint
from fieldagent.wire.tak import GeoChat, PlacedMarker, Sighting, TakUnit

FRESH = 1_800.0
"""Seconds for which a position is one of now: over satellite they come rarely."""
SHOWN = 600.0
"""Seconds for which an older one is shown before it is told again."""
LEAST = 10.0
"""Seconds between two positions of one unit."""
MOVED = 10.0
"""Metres that are news."""
DAY = 86_400.0
WORDS_MAX = 5_000
"""Characters of a message there: phones and servers take no event of any length."""
WAYS = {
    "ip": "over the internet",
    "satellite": "over satellite",
    "sms": "by SMS",
    "radio": "by radio",
}
PROGRAM = {
    "device": "fieldagent",
    "platform": "fieldagent",
    "os": "hub",
    "version": __version__,
}


def at(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


def unit_of(identity: str, user: KitUser) -> TakUnit:
    return TakUnit(f"{identity}-{user.member}", user.name)


def age(seconds: float) -> str:
    minutes = int(max(0.0, seconds) // 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


class ToldPosition(NamedTuple):
    """What the server was told of a user last."""

    user: KitUser
    at: float
    old: bool
    """Its position was one of before."""


def is_old(user: KitUser, now: float) -> bool:
    return user.at is None or now - user.at > FRESH


def position(
    unit: TakUnit, user: KitUser, told: ToldPosition | None, now: float, *, shared: bool
) -> list[CotEvent]:
    """Return what shows a user, without a place where none is known or `shared`. One of before has
    a marker beside it, whose name says on every map when the user was there."""
    when = at(now)
    if user.latitude is None or user.longitude is None or user.at is None or not shared:
        nowhere = Sighting(NOWHERE, when, at(now + FRESH), tak.BY_HAND, "no position is known")
        return [tak.unit(unit, nowhere, when, PROGRAM)]
    point, old = CotPoint(user.latitude, user.longitude), is_old(user, now)
    words = f"{age(now - user.at)} old; kit last heard {WAYS.get(user.way, user.way)}"
    stale = at(now + SHOWN) if old else at(user.at + FRESH)
    how = tak.LAST_KNOWN if old else tak.GPS
    shown = [tak.unit(unit, Sighting(point, at(user.at), stale, how, words), when, PROGRAM)]
    beside = f"{unit.uid}-last"
    if old:
        there = PlacedMarker(f"{user.name} {clock(user.at, now)}", words, point, at(user.at), ())
        shown.append(tak.marker(beside, unit, there, when, timedelta(seconds=SHOWN)))
    elif told is not None and told.old:
        shown.append(tak.removal(beside, unit, when))
    return shown


def clock(moment: float, now: float) -> str:
    """Return the time of day in UTC, behind the day where that may be another."""
    when = at(moment)
    day = f"{when:%d %b} " if now - moment > DAY * 0.8 else ""
    return f"{day}{when:%H:%M}Z"


def position_due(told: ToldPosition | None, user: KitUser, now: float) -> float:
    """Return when a user's position is to be told; what is not after `now` is due."""
    if told is None:
        return now
    if _has_moved(told.user, user) or user.name != told.user.name:
        return told.at + LEAST
    if is_old(user, now):
        return told.at + SHOWN / 2 if told.old else now
    # What was fresh then is told as old once it is.
    return min(told.at + FRESH / 2, (user.at or 0.0) + FRESH + 1.0)


def _has_moved(before: KitUser, now: KitUser) -> bool:
    if before.latitude is None or before.longitude is None:
        return now.latitude is not None
    if now.latitude is None or now.longitude is None:
        return False
    north = (now.latitude - before.latitude) * 111_320.0
    east = (now.longitude - before.longitude) * 111_320.0 * cos(radians(now.latitude))
    later = (now.at or 0.0) - (before.at or 0.0) > FRESH / 2
    return north * north + east * east > MOVED * MOVED or later


def person_for(item: FreshItem, people: Collection[int], shares: Collection[str]) -> int | None:
    """Return the member at the server for whom an item is; 0 for everybody there, None for nobody.
    What a bridge has brought goes to nobody."""
    if item.brought:
        return None
    if item.target is not None:
        return item.target if item.target in people and item.kind == "message" else None
    if not item.is_for_everybody or not item.from_kit or item.doubtful:
        return None
    shared = {"message": "messages", "waypoint": "waypoints"}.get(item.kind)
    return 0 if shared in shares else None


def event_of(out: OutEvent, unit: TakUnit, now: float) -> CotEvent | None:
    """Return the event that brings an item; None of a kind that has none."""
    when = at(now)
    if isinstance(out.content, Message):
        to = tak.ALL if out.person is None else TakUnit(out.uid, out.callsign)
        words = out.content.content
        if len(words) > WORDS_MAX:
            words = f"{words[:WORDS_MAX]}… [hub] {len(words) - WORDS_MAX} characters are cut off"
        return tak.chat(GeoChat(unit, to, out.message_id, words), when)
    if isinstance(out.content, Waypoint):
        placed = out.content
        point = CotPoint(placed.latitude, placed.longitude)
        made = placed.timestamp or at(out.moment)
        marker = PlacedMarker(placed.name, placed.notes or "", point, made, ())
        identity = unit.uid.rpartition("-")[0]
        return tak.marker(f"{identity}-w{out.item}", unit, marker, when)
    return None


def alert_of(alert: OpenAlert, unit: TakUnit, user: KitUser, now: float) -> CotEvent:
    """Return the 911 alert of an incident, or its cancel."""
    known = user.latitude is not None and user.longitude is not None
    point = CotPoint(user.latitude or 0.0, user.longitude or 0.0) if known else NOWHERE
    return tak.alert(unit, point, at(now), cancels=alert.ends)
