"""CoT events of ATAK and its servers: units, GeoChat and its receipts, 911 alerts, markers.

| meaning | type |
|---|---|
| a person or vehicle | `a-f-G-U-C` |
| GeoChat; it is on the phone; a person has read it | `b-t-f`; `b-t-f-d`; `b-t-f-r` |
| 911 alert; its cancel | `b-a-o-tbl`; `b-a-o-can` |
| marker, waypoint | `b-m-p-…` |
| take an object off the map | `t-x-d-d` |
| ping; its answer | `t-x-c-t`; `t-x-c-t-r` |

The types are those of ATAK-CIV 4.6 (GeoChatService, EmergencyManager, CotMapAdapter). A server
delivers a chat to the uids in `__chat`, and other events to the callsigns in `marti`. An event
without receivers goes to everyone. ATAK recognises a receipt by its event's uid, which is the id of
the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from fieldagent.extensions.tak.cot import NOWHERE, CotElement, CotEvent, CotPoint
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

UNIT, CHAT, ON_PHONE, READ = "a-f-G-U-C", "b-t-f", "b-t-f-d", "b-t-f-r"
ALERT, CANCEL, MARKER, POINTS = "b-a-o-tbl", "b-a-o-can", "b-m-p-s-m", "b-m-p-"
ALERTS = "b-a-o-"
"""Prefix of the types of alerts that a person raises: 911, ring the bell, in contact, custom."""
REMOVAL = "t-x-d-d"
PING, PONG = "t-x-c-t", "t-x-c-t-r"
HOW_GPS, HOW_LAST_KNOWN, HOW_BY_HAND = "m-g", "m-g-l", "h-g-i-g-o"
"""Sources of a position: GPS, last known position, entered by hand."""
ALL_CHAT_ROOMS = "All Chat Rooms"
BY_SERVER = "*:-1:stcp"
"""Endpoint of a unit that can be reached only through the server."""
ALERT_SUFFIX = "-9-1-1"
"""Suffix of an alert's uid, after the uid of its unit."""
FLOW_TAGS_ELEMENT = "_flow-tags_"
"""Element whose attributes name the programs that passed the event on."""
_CHAT_LASTS = timedelta(days=1)
_ALERT_LASTS = timedelta(seconds=90)
_PING_LASTS = timedelta(seconds=20)
_MARKER_LASTS = timedelta(days=1)


class TakUnit(NamedTuple):
    """A person or vehicle on the map."""

    uid: str
    callsign: str


class TakMotion(NamedTuple):
    speed: float | None = None
    """Metres per second over ground."""
    course: float | None = None
    """Degrees from true north."""


class Sighting(NamedTuple):
    """Position of a unit, with its time and its source."""

    point: CotPoint
    at: datetime
    """Time of the position."""
    stale: datetime
    how: str
    remarks: str
    motion: TakMotion = TakMotion()


@dataclass(frozen=True, slots=True)
class GeoChat:
    """A message from one unit to another, or to everyone."""

    sender: TakUnit
    to: TakUnit
    message_id: str
    text: str = ""


class ChatReceipt(NamedTuple):
    """A receipt, which TAK calls a tick: the message `message_id` is on `sender`'s phone, or was
    read there.
    """

    sender: TakUnit
    to: str
    """Uid of the receiver."""
    message_id: str
    read: bool


class PlacedMarker(NamedTuple):
    """A point that a person has sent to units. `to` contains the callsigns of these units."""

    name: str
    notes: str
    point: CotPoint
    at: datetime
    to: tuple[str, ...]


ALL_UNITS = TakUnit(ALL_CHAT_ROOMS, ALL_CHAT_ROOMS)


def _make_event(
    uid: str,
    type_: str,
    now: datetime,
    lifetime: timedelta,
    detail: list[CotElement],
    *,
    point: CotPoint = NOWHERE,
    how: str = HOW_BY_HAND,
) -> CotEvent:
    return CotEvent(uid, type_, now, now, now + lifetime, how, point, tuple(detail))


def _make_element(name: str, /, **attributes: str) -> CotElement:
    return CotElement(name, attributes)


def _make_flow(through: str, now: datetime) -> CotElement:
    return CotElement(
        FLOW_TAGS_ELEMENT, {through: f"{now.astimezone(UTC).isoformat(timespec='seconds')}"}
    )


def make_unit_event(
    unit: TakUnit,
    sighting: Sighting,
    now: datetime,
    program: Mapping[str, str],
    endpoint: str = BY_SERVER,
) -> CotEvent:
    """Return the position event of a unit. `program` contains `device`, `platform`, `os` and
    `version`, from which a server recognises the sender as this unit. `endpoint` is the address for
    messages to the unit.
    """
    motion = sighting.motion._asdict().items()
    moves = {name: f"{value:.1f}" for name, value in motion if value is not None}
    detail = (
        CotElement("takv", program),
        _make_element("contact", callsign=unit.callsign, endpoint=endpoint),
        _make_element("__group", name="Cyan", role="Team Member"),
        _make_element("precisionlocation", geopointsrc="GPS", altsrc="???"),
        *([_make_element("track", **moves)] if moves else []),
        _make_element("uid", Droid=unit.callsign),
        CotElement("remarks", text=sighting.remarks),
        _make_flow(unit.uid, now),
    )
    return CotEvent(
        unit.uid, UNIT, now, sighting.at, sighting.stale, sighting.how, sighting.point, detail
    )


def make_chat(chat: GeoChat, now: datetime) -> CotEvent:
    """Return the event of a GeoChat in a form that ATAK can show."""
    sender, addressee = chat.sender, chat.to
    attributes = {
        "source": f"BAO.F.ATAK.{sender.uid}",
        "to": addressee.uid,
        "time": f"{now.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z",
    }
    detail = _make_addressing("__chat", sender, addressee, chat.message_id, now)
    detail.append(CotElement("remarks", attributes, chat.text))
    uid = f"GeoChat.{sender.uid}.{addressee.uid}.{chat.message_id}"
    return _make_event(uid, CHAT, now, _CHAT_LASTS, detail)


def make_receipt(chat_receipt: ChatReceipt, sender: TakUnit, now: datetime) -> CotEvent:
    """Return the receipt for a message whose sender is `sender`."""
    detail = _make_addressing(
        "__chatreceipt", chat_receipt.sender, sender, chat_receipt.message_id, now
    )
    return _make_event(
        chat_receipt.message_id, READ if chat_receipt.read else ON_PHONE, now, _CHAT_LASTS, detail
    )


def _make_addressing(
    name: str, sender: TakUnit, to: TakUnit, message_id: str, now: datetime
) -> list[CotElement]:
    """Return the detail elements with sender and receiver. The first element has the name
    `name`.
    """
    names = {"uid0": sender.uid, "uid1": to.uid, "id": to.uid}
    attributes = {
        "parent": "RootContactGroup",
        "groupOwner": "false",
        "messageId": message_id,
        "chatroom": to.callsign,
        "id": to.uid,
        "senderCallsign": sender.callsign,
    }
    detail = [
        CotElement(name, attributes, children=(CotElement("chatgrp", names),)),
        _make_element("link", uid=sender.uid, type=UNIT, relation="p-p"),
        _make_flow(sender.uid, now),
    ]
    if to.uid != ALL_CHAT_ROOMS:
        destination = _make_element("dest", callsign=to.callsign)
        detail.append(CotElement("marti", children=(destination,)))
    return detail


def make_alert(unit: TakUnit, point: CotPoint, now: datetime, *, cancels: bool = False) -> CotEvent:
    """Return a 911 alert, or its cancel if `cancels` is True. The caller must repeat the event,
    because servers do not store alerts.
    """
    emergency = {"cancel": "true"} if cancels else {"type": "911 Alert"}
    detail = [
        _make_element("link", uid=unit.uid, type=UNIT, relation="p-p"),
        _make_element("contact", callsign=f"{unit.callsign}-Alert"),
        CotElement("emergency", emergency, unit.callsign),
        _make_flow(unit.uid, now),
    ]
    kind = CANCEL if cancels else ALERT
    return _make_event(
        f"{unit.uid}{ALERT_SUFFIX}", kind, now, _ALERT_LASTS, detail, point=point, how=HOW_GPS
    )


def make_marker(
    uid: str, by: TakUnit, marker: PlacedMarker, now: datetime, lifetime: timedelta | None = None
) -> CotEvent:
    """Return a marker for everyone. Phones keep the marker for `lifetime`, or forever if `lifetime`
    is None.
    """
    made_at = f"{marker.at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"
    link = {"uid": by.uid, "type": UNIT, "relation": "p-p", "parent_callsign": by.callsign}
    detail = [
        _make_element("contact", callsign=marker.name),
        CotElement("remarks", text=marker.notes),
        CotElement("link", {**link, "production_time": made_at}),
        *([_make_element("archive")] if lifetime is None else []),
        _make_flow(by.uid, now),
    ]
    return _make_event(uid, MARKER, now, lifetime or _MARKER_LASTS, detail, point=marker.point)


def make_removal(uid: str, by: TakUnit, now: datetime) -> CotEvent:
    """Return an event that removes one of this program's objects from all maps."""
    detail = [
        _make_element("link", uid=uid, relation="none", type="none"),
        _make_element("__forcedelete"),
        _make_flow(by.uid, now),
    ]
    return _make_event(f"{uid}-off", REMOVAL, now, _PING_LASTS, detail)


def make_ping_uid(uid: str) -> str:
    """Return the uid of a unit's pings, from which the unit recognises a ping that the server
    returns.
    """
    return f"{uid}-ping"


def make_ping(uid: str, now: datetime) -> CotEvent:
    """Return a ping, which the server answers with a pong."""
    return _make_event(make_ping_uid(uid), PING, now, _PING_LASTS, [])


def make_pong(now: datetime) -> CotEvent:
    """Return the pong, which answers a unit's ping."""
    return _make_event("fieldagent-pong", PONG, now, _PING_LASTS, [])


def is_passed_through(event: CotEvent, prefix: str) -> bool:
    """Return True if the event has passed through a program whose uid begins with `prefix`."""
    flow = event.find(FLOW_TAGS_ELEMENT)
    return flow is not None and any(each.startswith(prefix) for each in flow.attributes)


def is_of(event: CotEvent, prefix: str) -> bool:
    """Return True if a program whose uid begins with `prefix` created the event or passed it on."""
    link = event.find("link")
    sender = "" if link is None else link.get("uid")
    return (
        event.uid.startswith(prefix)
        or sender.startswith(prefix)
        or is_passed_through(event, prefix)
    )


def read_unit(event: CotEvent) -> TakUnit | None:
    """Return the unit that reports its own position. Return None if the event is a marker or has no
    callsign.
    """
    contact = event.find("contact")
    if contact is None or event.find("takv") is None or not contact.get("callsign"):
        return None
    return TakUnit(event.uid, contact.get("callsign"))


def read_chat(event: CotEvent) -> GeoChat | None:
    """Return the GeoChat in an event, or None if the event has no sender or no receiver."""
    remarks = event.find("remarks")
    parties = _read_parties(event, "__chat")
    if parties is None or remarks is None:
        return None
    sender, addressee, message_id = parties
    return GeoChat(sender, addressee, message_id or event.uid.rpartition(".")[2], remarks.text)


def read_receipt(event: CotEvent) -> ChatReceipt | None:
    """Return the receipt in an event of ATAK or WinTAK. Return None if the event has no sender or
    no receiver.
    """
    parties = _read_parties(event, "__chatreceipt") or _read_parties(event, "__chat")
    if parties is None:
        return None
    sender, addressee, message_id = parties
    return ChatReceipt(sender, addressee.uid, message_id or event.uid, event.type == READ)


def _read_parties(event: CotEvent, name: str) -> tuple[TakUnit, TakUnit, str] | None:
    """Return the sender, the receiver and the message id, which may be empty. Return None if one of
    the units is missing.
    """
    chat_element, link = event.find(name), event.find("link")
    if chat_element is None:
        return None
    group = chat_element.find("chatgrp") or CotElement("chatgrp")
    uid = (link.get("uid") if link is not None else "") or group.get("uid0")
    addressee = chat_element.get("id") or group.get("uid1")
    if not uid or not addressee:
        return None
    sender = TakUnit(uid, chat_element.get("senderCallsign") or uid)
    return sender, TakUnit(addressee, chat_element.get("chatroom")), chat_element.get("messageId")


class Addressed(NamedTuple):
    """Units that are the only receivers of an event."""

    uids: frozenset[str]
    callsigns: frozenset[str]


def read_addressed(event: CotEvent) -> Addressed | None:
    """Return the receivers of an event, or None if the event is for everyone. A chat names its
    receivers by uid. A chat without a receiver is for no one.
    """
    if event.type.startswith(CHAT):
        chat_element = event.find("__chatreceipt") or event.find("__chat") or CotElement("__chat")
        group = chat_element.find("chatgrp") or CotElement("chatgrp")
        addressee = chat_element.get("id") or group.get("uid1")
        if addressee == ALL_CHAT_ROOMS:
            return None
        named_uids = {value for name, value in group.attributes.items() if name.startswith("uid")}
        return Addressed(frozenset({addressee, *named_uids} - {""}), frozenset())
    marti = event.find("marti") or CotElement("marti")
    if not marti.children:
        return None
    dests = [each for each in marti.children if each.name == "dest"]
    uids, callsigns = ({each.get(name) for each in dests} - {""} for name in ("uid", "callsign"))
    return Addressed(frozenset(uids), frozenset(callsigns))


def read_removed(event: CotEvent) -> str:
    """Return the uid of the object that the event removes, or an empty text if the uid is
    missing.
    """
    link = event.find("link")
    return "" if link is None else link.get("uid")


class PhoneAlert(NamedTuple):
    """An alert that a person raises on a phone, or the cancel of such an alert."""

    sender: TakUnit
    point: CotPoint
    cancels: bool


ALERT_NAME_MAX = 100
"""Largest number of characters of an alert's uid and of its callsign. The rest is cut off."""


def read_alert(event: CotEvent) -> PhoneAlert | None:
    """Return the alert in an event, or None for any other event. Each part of the alert may be
    missing.
    """
    if not event.type.startswith(ALERTS):
        return None
    link, contact = event.find("link"), event.find("contact")
    emergency = event.find("emergency") or CotElement("emergency")
    uid = (link.get("uid") if link else "") or event.uid.removesuffix(ALERT_SUFFIX)
    named = contact.get("callsign").removesuffix("-Alert") if contact else ""
    callsign = _clean_line(emergency.text) or _clean_line(named) or _clean_line(uid) or "unknown"
    cancels = event.type == CANCEL or emergency.get("cancel") == "true"
    sender = TakUnit(_clean_line(uid)[:ALERT_NAME_MAX], callsign[:ALERT_NAME_MAX])
    return PhoneAlert(sender, event.point, cancels)


def _clean_line(text: str) -> str:
    """Return the text as one line without invisible characters."""
    return "".join(each for each in " ".join(text.split()) if each.isprintable())


def read_author(event: CotEvent) -> TakUnit | None:
    """Return the unit whose phone sends its position, a chat or an alert. Return None for other
    events.
    """
    if event.type.startswith("a-"):
        return read_unit(event)
    if event.type == CHAT:
        chat = read_chat(event)
        return None if chat is None else chat.sender
    alert = read_alert(event)
    return None if alert is None or alert.cancels else alert.sender


def read_marker(event: CotEvent) -> PlacedMarker | None:
    """Return the point that a person sends to units. Return None if the point is for everyone or
    has no position.
    """
    marti = event.find("marti")
    addressees = () if marti is None else tuple(each.get("callsign") for each in marti.children)
    if not any(addressees) or not event.point.is_known:
        return None
    contact, remarks = event.find("contact"), event.find("remarks")
    name = "" if contact is None else contact.get("callsign")
    notes = "" if remarks is None else remarks.text
    return PlacedMarker(name or "marker", notes, event.point, event.time, addressees)


def read_marker_author(event: CotEvent) -> TakUnit | None:
    """Return the unit that made a marker, or None if the event contains no uid of a unit."""
    link = event.find("link")
    if link is None or not link.get("uid"):
        return None
    return TakUnit(link.get("uid"), link.get("parent_callsign") or link.get("uid"))
