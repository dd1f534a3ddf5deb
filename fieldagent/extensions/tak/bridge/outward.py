"""Builds the events for a TAK server: units, messages, markers and alerts. Pure functions.

| at the hub | at the server | when |
|---|---|---|
| last position of a kit | its user's unit | on change, and again at half of its lifetime |
| message to a person at the server | GeoChat to that person | until their phone has confirmed it |
| message to everyone | GeoChat to all | once |
| waypoint to everyone | marker | once |
| unanswered SOS | 911 alert | every 10 s for a minute, then every minute |
"""

from __future__ import annotations

from collections.abc import Collection

from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak import map_events as tak_map
from fieldagent.extensions.tak.bridge.records import KitUser, NewItem, OpenAlert, OutEvent
from fieldagent.extensions.tak.cot import NOWHERE, CotEvent, CotPoint
from fieldagent.extensions.tak.events import GeoChat, PlacedMarker, TakUnit
from fieldagent.extensions.tak.map_events import SentPosition, ShowingProgram
from fieldagent.hub.records.sos import FRESH_S
from fieldagent.package.package import Message, Waypoint

BEARER_TEXTS = {
    "ip": "over the internet",
    "satellite": "over satellite",
    "sms": "by SMS",
    "radio": "by radio",
}


def make_unit(identity: str, user: KitUser) -> TakUnit:
    """Return the unit that represents a kit's user on the map. A user always has the same uid."""
    return TakUnit(f"{identity}-{user.member}", user.name)


def make_listening_unit(identity: str) -> TakUnit:
    """Return the unit of a connection that only receives. This unit never appears on a map."""
    return TakUnit(f"{identity}-0", "hub")


def make_position_events(
    unit: TakUnit, user: KitUser, place: SentPosition | None, now: float, *, is_shared: bool
) -> list[CotEvent]:
    """Return the events that show a user on the map (see `map_events.make_position_events`)."""
    shown_by = ShowingProgram("hub", f"kit last heard {BEARER_TEXTS.get(user.way, user.way)}")
    return tak_map.make_position_events(unit, user, shown_by, place, now, is_shared=is_shared)


def find_person(item: NewItem, people: Collection[int], shares: Collection[str]) -> int | None:
    """Return the member at the server who is the recipient of an item, or 0 for everyone at the
    server. Return None if the item must not be sent to the server. Items from a bridge are not
    sent. An item for everyone is sent only if its kit is authenticated and its kind is in `shares`.
    """
    if item.is_from_bridge:
        return None
    if item.target is not None:
        return item.target if item.target in people and item.kind == "message" else None
    if not item.is_for_everybody or not item.from_kit or item.is_unauthenticated:
        return None
    shared = {"message": "messages", "waypoint": "waypoints"}.get(item.kind)
    return 0 if shared in shares else None


def make_event(out: OutEvent, unit: TakUnit, now: float) -> CotEvent | None:
    """Return the event for an item, or None if items of this kind have no event."""
    date = tak_map.make_date(now)
    if isinstance(out.content, Message):
        addressee = tak.ALL_UNITS if out.person is None else TakUnit(out.uid, out.callsign)
        text = tak_map.shorten_text(out.content.content, "hub")
        return tak.make_chat(GeoChat(unit, addressee, out.message_id, text), date)
    if isinstance(out.content, Waypoint):
        placed = out.content
        point = CotPoint(placed.latitude, placed.longitude)
        made_at = placed.timestamp or tak_map.make_date(out.moment)
        marker = PlacedMarker(placed.name, placed.notes or "", point, made_at, ())
        identity = unit.uid.rpartition("-")[0]
        return tak.make_marker(f"{identity}-w{out.item}", unit, marker, date)
    return None


AWAITED_S = 10.0
"""Seconds after an SOS within which its own position may arrive. Until then, the alert does not
show an earlier position of the device."""


def make_alert(alert: OpenAlert, unit: TakUnit, now: float) -> CotEvent:
    """Return the 911 alert of an incident, or its cancel, at the place of the SOS."""
    point, place = NOWHERE, alert.place
    if place is not None and (
        place.at >= alert.raised_at - FRESH_S or now >= alert.raised_at + AWAITED_S
    ):
        point = CotPoint(place.latitude, place.longitude)
    return tak.make_alert(unit, point, tak_map.make_date(now), cancels=alert.ends)
