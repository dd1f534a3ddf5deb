"""Cursor on Target: the XML events that TAK programs send each other in a stream.

An event contains an object (`uid`, `type`), times (`time`, `start`, `stale`), a position (`point`)
and other elements (`detail`). In a stream, each event can have an XML declaration before it. A TAK
server splits the stream after the text `</event>`, so nothing may follow this text in an event
(MIL-STD-6090 draft; ATAK's streamingsocketmanagement.cpp). Anyone at the server can write events,
so their size, depth and entities are limited.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime
from xml.parsers import expat

from fieldagent.package.coordinates import is_zero_position
from fieldagent.package.package import limit_date
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.errors import RemoteProtocolError

EVENT_BYTES_MAX = 65_536
ELEMENTS_MAX = 4_000
"""Largest number of elements, which is more than fit into a usual event. A shape with 2,000 points
takes 64 kB."""
DEPTH_MAX = 12
UNKNOWN = 9_999_999.0
"""Value, in metres, for an unknown height or error."""
UNDATED = datetime(1970, 1, 1, tzinfo=UTC)
"""Time of an alarm whose time cannot be parsed."""
_UNKNOWN_FROM = 999_999.0
_END = b"</event>"
_EVENT_BEGIN = re.compile(rb"<event[\s>]")
_UID = re.compile(rb"""\buid\s*=\s*(["'])([^"'<>&]{1,200})\1""")
_TYPE = re.compile(rb"""\btype\s*=\s*(["'])([^"'<>&]{1,100})\1""")
_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'
_TIMES = ("time", "start", "stale")


@dataclass(frozen=True, slots=True)
class CotElement:
    """An element in the detail of an event."""

    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    children: tuple[CotElement, ...] = ()

    def find(self, name: str) -> CotElement | None:
        """Return the first child with the name `name`, or None."""
        return next((each for each in self.children if each.name == name), None)

    def get(self, name: str) -> str:
        """Return the value of an attribute, or an empty text if it is missing."""
        return self.attributes.get(name, "")


@dataclass(frozen=True, slots=True)
class CotPoint:
    """Position in degrees of WGS84. Height above the ellipsoid and error are in metres."""

    latitude: float
    longitude: float
    height: float | None = None
    error: float | None = None

    @property
    def is_known(self) -> bool:
        """Return True if the position is known. A phone without a position sends 0, 0 and no
        error.
        """
        return not is_zero_position(self.latitude, self.longitude)


NOWHERE = CotPoint(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class CotEvent:
    uid: str
    """Id of the object. A new event with the same uid replaces the earlier event."""
    type: str
    time: datetime
    """Time when the event was created."""
    start: datetime
    """Time from which the event is valid."""
    stale: datetime
    """Time when the event expires."""
    how: str
    """Code for the source of the position."""
    point: CotPoint = NOWHERE
    detail: tuple[CotElement, ...] = ()

    def find(self, name: str) -> CotElement | None:
        """Return the first element with the name `name` in the detail, or None."""
        return next((each for each in self.detail if each.name == name), None)


class EventSplitter:
    """Splits a stream into events. The splitter skips an event that is too long, and continues with
    the next event.
    """

    def __init__(self) -> None:
        self.too_long = 0
        """Number of events that were skipped because of their length."""
        self._rest = bytearray()
        self._skips = False
        """True if the next bytes belong to an event that is too long."""

    def receive_data(self, data: bytes) -> list[bytes]:
        """Add bytes from the stream, and return the events that are complete now, each as bytes. An
        event that is longer than EVENT_BYTES_MAX is skipped and counted in `too_long`.
        """
        sought_from = max(0, len(self._rest) - len(_END))
        self._rest += data
        events = []
        start = 0
        while (end := self._rest.find(_END, max(start, sought_from))) >= 0:
            end += len(_END)
            if self._skips or end - start > EVENT_BYTES_MAX:
                self.too_long += 1
            else:
                events.append(bytes(self._rest[start:end]))
            self._skips = False
            start = end
        del self._rest[:start]
        if self._skips or len(self._rest) > EVENT_BYTES_MAX:
            self._skips = True
            del self._rest[: -len(_END)]
        return events


def find_start_tag(raw: bytes) -> bytes:
    """Return the start tag of an event unchanged, but without its `>`. Return empty bytes if there
    is no event.
    """
    start_match = _EVENT_BEGIN.search(raw)
    return b"" if start_match is None else raw[start_match.start() :].partition(b">")[0]


def find_uid(raw: bytes) -> str:
    """Return the uid of an event without parsing the rest, or an empty text if there is none."""
    match = _UID.search(find_start_tag(raw))
    return match[2].decode("utf-8", "replace") if match else ""


def find_type(raw: bytes) -> str:
    """Return the type of an event without parsing the rest, or an empty text if there is none."""
    match = _TYPE.search(find_start_tag(raw))
    return match[2].decode("utf-8", "replace") if match else ""


def decode(raw: bytes) -> CotEvent:
    """Parse one event. Everything before the event is skipped, because a document type there could
    define entities. Raises RemoteProtocolError if there is no valid event.
    """
    start_match = _EVENT_BEGIN.search(raw)
    if start_match is None:
        raise RemoteProtocolError("it is not an event")
    root = _read_tree(raw[start_match.start() :])
    uid, type_ = root.get("uid"), root.get("type")
    is_alarm = type_.startswith(_ALARMS)
    if not type_ or not (uid or is_alarm):
        raise RemoteProtocolError("an event without uid or type")
    # An alarm is accepted even if other parts of the event are missing or wrong.
    read_date = _read_alarm_moment if is_alarm else _read_moment
    time, start, stale = (read_date(root.get(name), name) for name in _TIMES)
    detail = root.find("detail")
    children = () if detail is None else detail.children
    return CotEvent(
        uid, type_, time, start, stale, root.get("how"), _read_place(root, type_), children
    )


def _read_place(root: CotElement, type_: str) -> CotPoint:
    """Return the position of an event. Return NOWHERE if the event is a message or alarm and has no
    valid position. Raises RemoteProtocolError if another event, such as a unit or marker, has no
    valid position.
    """
    try:
        point = root.find("point")
        if point is None:
            raise RemoteProtocolError("an event without a point")
        return _read_point(point)
    except RemoteProtocolError:
        if type_.startswith(_MESSAGE_TYPES):
            return NOWHERE
        raise


_ALARMS = "b-a-"
_MESSAGE_TYPES = "b-t-", _ALARMS
"""Prefixes of the CoT types of messages and alarms."""


def _read_moment(text: str, name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return limit_date(moment).astimezone(UTC)
    except (ValueError, OverflowError):
        raise RemoteProtocolError(f"an event whose {name} is {text[:40]!r}") from None


def _read_alarm_moment(text: str, name: str) -> datetime:
    """Return the time of an alarm, or UNDATED if it cannot be parsed."""
    try:
        return _read_moment(text, name)
    except RemoteProtocolError:
        return UNDATED


def _read_point(element: CotElement) -> CotPoint:
    latitude, longitude = _read_number(element, "lat"), _read_number(element, "lon")
    if abs(latitude) > 90 or abs(longitude) > 180:
        raise RemoteProtocolError(f"an event at {latitude}, {longitude}")
    return CotPoint(latitude, longitude, *(_read_metres(element, name) for name in ("hae", "ce")))


def _read_metres(element: CotElement, name: str) -> float | None:
    """Return a value in metres, or None if the value is unknown or not a number."""
    try:
        metres = _read_number(element, name)
    except RemoteProtocolError:
        return None
    return metres if abs(metres) < _UNKNOWN_FROM else None


def _read_number(element: CotElement, name: str) -> float:
    try:
        number = float(element.attributes.get(name, math.nan))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise RemoteProtocolError(f"an event whose {name} is {element.get(name)[:40]!r}")
    return number


def _read_tree(xml: bytes) -> CotElement:
    tree = _Tree()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = tree.begin
    parser.EndElementHandler = tree.end_element
    parser.CharacterDataHandler = tree.add_text
    try:
        parser.Parse(xml, True)
    except expat.ExpatError as error:
        raise RemoteProtocolError(f"the event is not XML: {error}") from None
    assert tree.root is not None, "expat refuses what has no element"
    return tree.root


@dataclass(slots=True)
class _OpenElement:
    name: str
    attributes: Mapping[str, str]
    text: list[str] = field(default_factory=list)
    children: list[CotElement] = field(default_factory=list)


class _Tree:
    """Event handler of the XML parser (expat)."""

    def __init__(self) -> None:
        self.root: CotElement | None = None
        self._open: list[_OpenElement] = []
        self._elements = 0

    def begin(self, name: str, attributes: Mapping[str, str]) -> None:
        self._elements += 1
        if self._elements > ELEMENTS_MAX or len(self._open) >= DEPTH_MAX:
            raise RemoteProtocolError("an event of too many elements")
        self._open.append(_OpenElement(name, attributes))

    def end_element(self, name: str) -> None:
        ended_element = self._open.pop()
        text = "".join(ended_element.text)
        element = CotElement(
            ended_element.name, ended_element.attributes, text, tuple(ended_element.children)
        )
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element

    def add_text(self, text: str) -> None:
        if self._open:
            self._open[-1].text.append(text)


def encode(event: CotEvent) -> bytes:
    """Return the event in the form for a stream."""
    times = {name: _format_moment(getattr(event, name)) for name in _TIMES}
    head = {"version": "2.0", "uid": event.uid, "type": event.type, **times, "how": event.how}
    point = event.point
    where = {
        "lat": f"{point.latitude:.6f}",
        "lon": f"{point.longitude:.6f}",
        "hae": _format_metres(point.height),
        "ce": _format_metres(point.error),
        "le": _format_metres(None),
    }
    children = (CotElement("point", where), CotElement("detail", children=event.detail))
    event_text = "".join(_format_parts(CotElement("event", head, children=children)))
    return (_DECLARATION + event_text).encode("utf-8", "replace")


def frame_event(raw: bytes) -> bytes:
    """Return the bytes of a received event for another stream. Everything before the event is
    removed, because it could contain a document type. `raw` must be valid for `decode`.
    """
    start_match = _EVENT_BEGIN.search(raw)
    assert start_match is not None, "decode has found it"
    return _DECLARATION.encode() + raw[start_match.start() :]


def _format_metres(metres: float | None) -> str:
    return f"{UNKNOWN if metres is None else metres:.1f}"


def _format_moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def _format_parts(element: CotElement) -> Iterator[str]:
    attributes = "".join(
        f' {name}="{_escape(value)}"' for name, value in element.attributes.items()
    )
    if not element.text and not element.children:
        yield f"<{element.name}{attributes}/>"
        return
    yield f"<{element.name}{attributes}>{_escape(element.text)}"
    for child in element.children:
        yield from _format_parts(child)
    yield f"</{element.name}>"


_REFUSED_CHARACTERS = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not allow."""
_ESCAPES = str.maketrans({each: f"&#{ord(each)};" for each in "&<>\"'\t\n\r"})


def _escape(text: str) -> str:
    return _REFUSED_CHARACTERS.sub("", text).translate(_ESCAPES)
