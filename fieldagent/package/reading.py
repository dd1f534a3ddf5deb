"""Parses a posted JSON body into a Package, or raises an error with all faults of the body.

Field names, ranges and default priorities are those of the interface document, "Local Package".
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sized
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fieldagent.package.coordinates import NoCoordinate, read_degrees
from fieldagent.package.package import (
    ALTITUDE_MAX,
    ALTITUDE_MIN,
    CHECK_IN_MAX,
    CHECK_IN_MIN,
    FIRST_DATE,
    LAST_DATE,
    SOS_PRIORITY,
    SPEED_MAX_M_S,
    Channel,
    CheckIn,
    CommandAnswer,
    CommandOutcome,
    Data,
    IncidentState,
    IncidentUpdate,
    Location,
    Message,
    Package,
    Parcel,
    Person,
    PositionSource,
    Waypoint,
)
from fieldagent.package.strict_json import load_document
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import Sentence, sentence

ITEM_BYTES_MAX = 100_000
"""Maximum bytes of a text or data, so that the item fits, with its sender's name, into one message
of the IP link."""
INT32 = range(-(2**31), 2**31)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in a posted body. `pointer` is a JSON Pointer (RFC 6901) to the faulty member."""

    detail: str
    pointer: str


def number_of_faults(faults: Sized) -> Sentence:
    """Return a text for people: `1 fault`, or for another number `2 faults`."""
    return sentence("1 fault") if len(faults) == 1 else sentence("{n} faults", n=len(faults))


class InvalidPackage(ValueError):
    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(f"{fault.pointer}: {fault.detail}" for fault in faults))
        self.faults = faults


class WrongValue(ValueError):
    """Error: a single value is invalid. The message is the detail of a Fault."""


Reader = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Field:
    read: Reader
    attribute: str
    required: bool = False


def read_text(value: Any) -> str:
    """Return `value` if it is a string of at most `ITEM_BYTES_MAX` bytes of UTF-8. Raises
    WrongValue for any other value.
    """
    if not isinstance(value, str):
        raise WrongValue("must be a string")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise WrongValue("holds half of a surrogate pair, which is not a character") from None
    if size > ITEM_BYTES_MAX:
        raise WrongValue(
            sentence(
                "must be at most {most} bytes of UTF-8, is {size}",
                most=ITEM_BYTES_MAX,
                size=size,
            )
        )
    return value


def _read_base64(value: Any) -> bytes:
    if not isinstance(value, str):
        raise WrongValue("must be a string of base64")
    try:
        payload = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise WrongValue("is not base64 (RFC 4648 section 4, with padding)") from None
    if len(payload) > ITEM_BYTES_MAX:
        raise WrongValue(
            sentence(
                "must be at most {most} bytes, is {size}",
                most=ITEM_BYTES_MAX,
                size=len(payload),
            )
        )
    return payload


def read_int32(value: Any) -> int:
    """Return a 32-bit integer. 12.0 is accepted, true is not. Raises WrongValue for any other
    value.
    """
    if isinstance(value, float) and value.is_integer():
        # 12.0 is an integer in JSON Schema, and clients that have only floats write integers this
        # way.
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongValue("must be an integer")
    if value not in INT32:
        raise WrongValue("must be a 32-bit integer, from -2147483648 to 2147483647")
    return value


def read_seconds(value: Any) -> int:
    """Return a number of seconds, which must be 1 or more. Raises WrongValue for any other
    value.
    """
    seconds = read_int32(value)
    if seconds < 1:
        raise WrongValue("must be 1 second or more")
    return seconds


def _number(minimum: float, maximum: float, unit: str) -> Reader:
    def read(value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise WrongValue("must be a number")
        if not (minimum <= value <= maximum):
            raise WrongValue(
                sentence(
                    "must be from {low} to {high} {unit}",
                    low=f"{minimum:g}",
                    high=f"{maximum:g}",
                    unit=unit,
                )
            )
        return float(value)

    return read


def _make_coordinate_reader(limit: float, side_letters: str) -> Reader:
    within = _number(-limit, limit, sentence("degrees"))

    def read(value: Any) -> float:
        if not isinstance(value, str):
            return float(within(value))
        try:
            return float(within(read_degrees(value, side_letters)))
        except NoCoordinate as error:
            raise WrongValue(str(error)) from None

    return read


def read_timestamp(value: Any) -> datetime:
    """Parse a time in RFC 3339 or ISO 8601. A time without an offset is UTC. Raises WrongValue for
    any other value.
    """
    if not isinstance(value, str):
        raise WrongValue("must be a string with an ISO 8601 time")
    try:
        moment = datetime.fromisoformat(value)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise WrongValue("is not an ISO 8601 time, such as 2026-05-04T10:00:00Z") from None
    if not FIRST_DATE.year <= moment.year <= LAST_DATE.year:
        raise WrongValue("must be between 1970 and 2105")
    return moment


def _read_channels(value: Any) -> frozenset[Channel]:
    if not isinstance(value, list):
        raise WrongValue("must be an array of channel names")
    names = [channel.value for channel in Channel]
    if not value:
        raise WrongValue(
            sentence(
                "must name at least one of {names}; leave it out to use all", names=", ".join(names)
            )
        )
    for name in value:
        if name not in names:
            raise WrongValue(
                sentence(
                    "may only name {names}, not {name}",
                    names=", ".join(names),
                    name=json.dumps(name)[:40],
                )
            )
    return frozenset(Channel(name) for name in value)


_POSITION = {
    "latitude": Field(_make_coordinate_reader(90, "NS"), "latitude", required=True),
    "longitude": Field(_make_coordinate_reader(180, "EW"), "longitude", required=True),
    "timestamp": Field(read_timestamp, "timestamp"),
}


class ItemKind(NamedTuple):
    """Kind of items that a Package can contain: its class, its members, and its default
    priority.
    """

    build: type[Any]
    priority: int
    """Default priority."""
    members: Mapping[str, Field]


Items = Mapping[str, ItemKind]


def _read_position_source(value: Any) -> PositionSource:
    try:
        return PositionSource(value)
    except ValueError:
        raise WrongValue(
            sentence("must be one of {words}", words=", ".join(PositionSource))
        ) from None


ITEMS: Items = {
    "data": ItemKind(Data, 11, {"payload": Field(_read_base64, "payload", required=True)}),
    "message": ItemKind(Message, 12, {"content": Field(read_text, "content", required=True)}),
    "location": ItemKind(
        Location,
        10,
        {
            **_POSITION,
            "altitude": Field(_number(ALTITUDE_MIN, ALTITUDE_MAX, "m"), "altitude"),
            "speedOverGround": Field(_number(0, SPEED_MAX_M_S, "m/s"), "speed_over_ground"),
            "courseOverGround": Field(_number(0, 360, sentence("degrees")), "course_over_ground"),
            "source": Field(_read_position_source, "source"),
        },
    ),
    "waypoint": ItemKind(
        Waypoint,
        11,
        {
            **_POSITION,
            "name": Field(read_text, "name", required=True),
            "notes": Field(read_text, "notes"),
        },
    ),
}
"""Kinds of items by their names in a Package."""


def read_check_in(value: Any) -> int:
    """Return the seconds of a check-in. Raises WrongValue if they are not whole minutes, because
    the time is in minutes on the air.
    """
    seconds = read_int32(value)
    if not CHECK_IN_MIN <= seconds <= CHECK_IN_MAX or seconds % 60:
        raise WrongValue(
            sentence(
                "must be whole minutes, from {least} to {most} seconds",
                least=CHECK_IN_MIN,
                most=CHECK_IN_MAX,
            )
        )
    return seconds


def _read_natural_number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise WrongValue("must be a whole number of 0 or more")
    return value


def _read_incident_state(value: Any) -> IncidentState:
    try:
        return IncidentState(value)
    except ValueError:
        raise WrongValue(
            sentence("must be one of {words}", words=", ".join(IncidentState))
        ) from None


def _read_command_outcome(value: Any) -> CommandOutcome:
    try:
        return CommandOutcome(value)
    except ValueError:
        raise WrongValue("must be 0, 1 or 2") from None


KINDS: Items = {
    **ITEMS,
    "checkIn": ItemKind(CheckIn, 50, {"within": Field(read_check_in, "within_s")}),
    "commandAnswer": ItemKind(
        CommandAnswer,
        50,
        {
            "number": Field(_read_natural_number, "number", required=True),
            "outcome": Field(_read_command_outcome, "outcome", required=True),
            "body": Field(_read_base64, "body", required=True),
        },
    ),
    "incident": ItemKind(
        IncidentUpdate,
        SOS_PRIORITY - 1,
        {
            "number": Field(_read_natural_number, "incident", required=True),
            "state": Field(_read_incident_state, "state", required=True),
            "station": Field(_read_natural_number, "station"),
            "by": Field(read_text, "by"),
            "text": Field(read_text, "text"),
            "proof": Field(_read_base64, "proof"),
        },
    ),
    "parcel": ItemKind(
        Parcel,
        12,
        {
            "body": Field(_read_base64, "body", required=True),
            "station": Field(_read_natural_number, "station"),
        },
    ),
}
"""All kinds of items: the kinds that a caller can post, and the agent's own kinds, which are sent
before all items except an SOS."""

PERSON_MAX = 254
"""Maximum characters of a name or address: the longest e-mail address (RFC 5321, 4.5.3.1)."""
NUMBER_MAX = 2**32 - 1
"""Maximum number of a user or group."""


def read_person(value: Any) -> Person:
    """Return an addressee or author: the number of a user or group, or a name or address. Raises
    WrongValue for any other value.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= abs(value) <= NUMBER_MAX:
            raise WrongValue("must be the number of a user, or of a group with a minus before it")
        return value
    if not isinstance(value, str):
        raise WrongValue('must be a name, an address or a number, such as "ada"')
    if not 1 <= len(value) <= PERSON_MAX:
        raise WrongValue(
            sentence(
                "must have 1 to {most} characters, has {size}",
                most=PERSON_MAX,
                size=len(value),
            )
        )
    return read_text(value)


def read_receipt(value: Any) -> bool:
    """Return True for the member `receipt`, whose only allowed value is "read". Raises WrongValue
    for any other value.
    """
    if value != "read":
        raise WrongValue('may only be "read"; leave it out to ask for nothing')
    return True


ROUTING = {
    "id": Field(read_int32, "id"),
    "channels": Field(_read_channels, "channels"),
    "collapseKey": Field(read_int32, "collapse_key"),
    "priority": Field(read_int32, "priority"),
    "timeToLive": Field(read_seconds, "time_to_live"),
    "gather": Field(read_seconds, "gather"),
    "by": Field(read_seconds, "by"),
    "to": Field(read_person, "to"),
    "receipt": Field(read_receipt, "wants_receipt"),
    "from": Field(read_person, "author"),
    "workspaceId": Field(lambda value: None, ""),
}


SOS_WITHOUT_TEXT = "SOS"
"""Text of an SOS whose sender has written no text."""


def parse_package(body: bytes, faults_out: list[Fault] | None = None) -> Package:
    """Parse the body of a POST, and return the Package. Raises NotJson, or InvalidPackage with all
    faults. `faults_out` has the same meaning as for `read_package`.
    """
    return read_package(load_document(body), ITEMS, faults_out)


def read_package(
    document: Any, kinds: Items = KINDS, faults_out: list[Fault] | None = None
) -> Package:
    """Return the Package of a JSON document. Raises InvalidPackage with all faults.

    If `faults_out` is not None, an SOS is never refused: its faults are added to `faults_out`, and
    its faulty members are left out.
    """
    faults: list[Fault] = []
    try:
        item, priority, routing = read_one_of(document, kinds, ROUTING)
    except InvalidPackage:
        if faults_out is None or not is_sos(document):
            raise
        item, routing = _read_sos(document, kinds, faults)
        priority = SOS_PRIORITY
        faults_out += faults
    package = Package(item=item, **{"priority": priority, **routing})
    # Drop a faulty addressee, because an SOS is for everyone in any case, and must not be refused.
    return replace(package, to=None) if package.sos else package


def read_stored_package(body: str) -> Package:
    """Return the Package of a stored body. Unlike a posted Package, it may be without any channel,
    if its sender's budget could pay for none. Raises ValueError, TypeError.
    """
    document = json.loads(body)
    if isinstance(document, dict) and document.get("channels") == []:
        del document["channels"]
        return replace(read_package(document), channels=frozenset())
    return read_package(document)


def read_one_of(
    document: Any, items: Items, routing: Mapping[str, Field]
) -> tuple[Any, int, dict[str, Any]]:
    """Return the one item of a body, the default priority of its kind, and the other members of the
    body by attribute.

    Raises InvalidPackage with all faults.
    """
    faults: list[Fault] = []
    if not isinstance(document, dict):
        raise InvalidPackage([Fault("must be a JSON object with one Package", "")])
    kinds = [kind for kind in items if document.get(kind) is not None]
    if len(kinds) != 1:
        listing = " and ".join(kinds) or "none"
        faults += [
            Fault(
                sentence(
                    "exactly one of {items} is required, found {found}",
                    items=", ".join(items),
                    found=listing,
                ),
                pointer,
            )
            for pointer in [f"/{kind}" for kind in kinds] or [""]
        ]
    members = {name: value for name, value in document.items() if name not in items}
    address_members = read_members(members, routing, "", faults, extra_members=items)
    items_read = [_read_item(kind, document[kind], items, faults) for kind in kinds]
    if faults:
        raise InvalidPackage(faults)
    address_members.pop("", None)
    return items_read[0], items[kinds[0]][1], address_members


def is_sos(document: Any) -> bool:
    """Return True if the JSON document of a Package has a valid priority that is at least the
    priority of an SOS.
    """
    try:
        return isinstance(document, dict) and read_int32(document.get("priority")) >= SOS_PRIORITY
    except WrongValue:
        return False


def _read_sos(
    document: dict[str, Any], kinds: Items, faults: list[Fault]
) -> tuple[Any, dict[str, Any]]:
    """Return the first item of an SOS that can be read, and the other readable members. If no item
    can be read, return a Message with the text `SOS_WITHOUT_TEXT`.
    """
    other_members = {name: value for name, value in document.items() if name not in kinds}
    routing = read_members(other_members, ROUTING, "", faults, extra_members=kinds)
    routing.pop("", None)
    items: list[Any] = []
    if not any(document.get(kind) is not None for kind in kinds):
        faults.append(Fault("is required", "/message"))
    for kind in sorted(kinds, key=lambda name: name != "message"):
        if document.get(kind) is not None:
            item = read_forgivingly(kind, document[kind], faults, kinds)
            if items and item is not None:
                faults.append(Fault("exceeds the number of items", f"/{kind}"))
            items += [] if item is None else [item]
    return (items[0] if items else Message(SOS_WITHOUT_TEXT)), routing


def read_forgivingly(kind: str, value: Any, faults: list[Fault], items: Items = ITEMS) -> Any:
    """Return an item without its unreadable members, or None if a required member is unreadable.
    The faults are added to `faults`.
    """
    build, _, members = items[kind]
    if not isinstance(value, dict):
        faults.append(Fault("must be an object", f"/{kind}"))
        return None
    attributes = read_members(value, members, f"/{kind}", faults)
    needed = {field.attribute for field in members.values() if field.required}
    return build(**attributes) if needed <= attributes.keys() else None


def _read_item(kind: str, value: Any, items: Items, faults: list[Fault]) -> Any:
    before = len(faults)
    item = read_forgivingly(kind, value, faults, items)
    return item if len(faults) == before else None


_NAME_SHOWN = 80
"""Maximum characters of a member's name in a pointer. An unknown name may be as long as the
body."""


def read_members(
    value: Mapping[str, Any],
    members: Mapping[str, Field],
    at: str,
    faults: list[Fault],
    extra_members: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the readable members by attribute, and add the faults to `faults`. A null counts as a
    missing member.
    """
    attributes: dict[str, Any] = {}
    for name, member in value.items():
        pointer = f"{at}/{name[:_NAME_SHOWN].replace('~', '~0').replace('/', '~1')}"
        if name not in members:
            known_names = ", ".join([*members, *(extra_members or ())])
            faults.append(
                Fault(
                    sentence("is not a known member; known are {known}", known=known_names), pointer
                )
            )
        elif member is not None:
            try:
                attributes[members[name].attribute] = members[name].read(member)
            except WrongValue as wrong:
                faults.append(Fault(str(wrong), pointer))
    faults += [
        Fault("is required", f"{at}/{name}")
        for name, field in members.items()
        if field.required and value.get(name) is None
    ]
    return attributes
