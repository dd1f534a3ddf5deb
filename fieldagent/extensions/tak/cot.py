"""Cursor-on-Target: the events that TAK programs send each other, as XML in a stream.

An event says what (`uid`, `type`), when (`time`, `start`, `stale`), where (`point`) and more
(`detail`). In a stream one follows another, each behind an XML declaration perhaps; a TAK server
splits it at the text `</event>`, so nothing stands behind that (MIL-STD-6090 draft; ATAK's
streamingsocketmanagement.cpp). Anybody at the server writes these: sizes, depth and entities are
bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime
from xml.parsers import expat

from fieldagent.package.coordinates import is_nowhere
from fieldagent.package.package import bounded_date
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.errors import RemoteProtocolError

EVENT_BYTES_MAX = 65_536
ELEMENTS_MAX = 400
DEPTH_MAX = 12
UNKNOWN = 9_999_999.0
"""Stands for a height or an error that nobody knows."""
_UNKNOWN_FROM = 999_999.0
_END = b"</event>"
_BEGIN = re.compile(rb"<event[\s>]")
_TYPE = re.compile(rb"""<event\s[^>]*?\btype\s*=\s*(["'])([^"'<>&]{1,100})\1""")
_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'
_TIMES = ("time", "start", "stale")


@dataclass(frozen=True, slots=True)
class CotElement:
    """One element of a detail."""

    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    children: tuple[CotElement, ...] = ()

    def find(self, name: str) -> CotElement | None:
        """Return the first child of that name."""
        return next((each for each in self.children if each.name == name), None)

    def get(self, name: str) -> str:
        """Return an attribute; empty where it is not there."""
        return self.attributes.get(name, "")


@dataclass(frozen=True, slots=True)
class CotPoint:
    """Degrees of WGS84, and metres: above the ellipsoid, and of error."""

    latitude: float
    longitude: float
    height: float | None = None
    error: float | None = None

    @property
    def is_known(self) -> bool:
        """Return whether it is a place: a phone without one says 0, 0 and no error."""
        return not is_nowhere(self.latitude, self.longitude)


NOWHERE = CotPoint(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class CotEvent:
    uid: str
    """Names the object: what has the same takes the place of what was said before."""
    type: str
    time: datetime
    """When it was made."""
    start: datetime
    """From when it holds."""
    stale: datetime
    """When to forget it."""
    how: str
    """How the position was found."""
    point: CotPoint = NOWHERE
    detail: tuple[CotElement, ...] = ()

    def find(self, name: str) -> CotElement | None:
        """Return the first element of that name in the detail."""
        return next((each for each in self.detail if each.name == name), None)


class EventSplitter:
    """Splits what comes in a stream into the bytes of single events. One that is too long is left
    out: the next is found by the end of that one."""

    def __init__(self) -> None:
        self.too_long = 0
        """How many were left out."""
        self._rest = bytearray()
        self._skips = False
        """What comes is the rest of one that is too long."""

    def receive_data(self, data: bytes) -> list[bytes]:
        """Return the events that are whole by now."""
        sought_from = max(0, len(self._rest) - len(_END))
        self._rest += data
        events = []
        begin = 0
        while (end := self._rest.find(_END, max(begin, sought_from))) >= 0:
            end += len(_END)
            if self._skips or end - begin > EVENT_BYTES_MAX:
                self.too_long += 1
            else:
                events.append(bytes(self._rest[begin:end]))
            self._skips = False
            begin = end
        del self._rest[:begin]
        if self._skips or len(self._rest) > EVENT_BYTES_MAX:
            self._skips = True
            del self._rest[: -len(_END)]
        return events


def type_of(raw: bytes) -> str:
    """Return an event's type without reading the rest of it; empty where it is not found."""
    match = _TYPE.search(raw)
    return match[2].decode("utf-8", "replace") if match else ""


def decode(raw: bytes) -> CotEvent:
    """Read one event; what stands before it, where a document type could define entities, is not
    looked at. Raises RemoteProtocolError for what is none."""
    begin = _BEGIN.search(raw)
    if begin is None:
        raise RemoteProtocolError("what came is no event")
    root = _tree(raw[begin.start() :])
    uid, type_ = root.get("uid"), root.get("type")
    if not uid or not type_:
        raise RemoteProtocolError("an event without uid or type")
    time, start, stale = (_moment(root.get(name), name) for name in _TIMES)
    detail = root.find("detail")
    children = () if detail is None else detail.children
    return CotEvent(uid, type_, time, start, stale, root.get("how"), _place(root, type_), children)


def _place(root: CotElement, type_: str) -> CotPoint:
    """Return where an event is. A message or an alarm without a place that can be read is NOWHERE.
    Raises RemoteProtocolError for an event that is a place, such as a unit or a marker."""
    try:
        point = root.find("point")
        if point is None:
            raise RemoteProtocolError("an event without a point")
        return _point(point)
    except RemoteProtocolError:
        if type_.startswith(_WORDS):
            return NOWHERE
        raise


_WORDS = "b-t-", "b-a-"
"""How types of messages and alarms begin."""


def _moment(text: str, name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return bounded_date(moment).astimezone(UTC)
    except (ValueError, OverflowError):
        raise RemoteProtocolError(f"an event whose {name} is {text[:40]!r}") from None


def _point(element: CotElement) -> CotPoint:
    latitude, longitude = _number(element, "lat"), _number(element, "lon")
    if abs(latitude) > 90 or abs(longitude) > 180:
        raise RemoteProtocolError(f"an event at {latitude}, {longitude}")
    return CotPoint(latitude, longitude, *(_measure(element, name) for name in ("hae", "ce")))


def _measure(element: CotElement, name: str) -> float | None:
    """Return metres; None for unknown, and for what is no number."""
    try:
        metres = _number(element, name)
    except RemoteProtocolError:
        return None
    return metres if abs(metres) < _UNKNOWN_FROM else None


def _number(element: CotElement, name: str) -> float:
    try:
        number = float(element.attributes.get(name, math.nan))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise RemoteProtocolError(f"an event whose {name} is {element.get(name)[:40]!r}")
    return number


def _tree(xml: bytes) -> CotElement:
    tree = _Tree()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = tree.begin
    parser.EndElementHandler = tree.end
    parser.CharacterDataHandler = tree.say
    try:
        parser.Parse(xml, True)
    except expat.ExpatError as error:
        raise RemoteProtocolError(f"an event that is no XML: {error}") from None
    assert tree.root is not None, "expat refuses what has no element"
    return tree.root


@dataclass(slots=True)
class _Open:
    name: str
    attributes: Mapping[str, str]
    text: list[str] = field(default_factory=list)
    children: list[CotElement] = field(default_factory=list)


class _Tree:
    """What expat calls."""

    def __init__(self) -> None:
        self.root: CotElement | None = None
        self._open: list[_Open] = []
        self._elements = 0

    def begin(self, name: str, attributes: Mapping[str, str]) -> None:
        self._elements += 1
        if self._elements > ELEMENTS_MAX or len(self._open) >= DEPTH_MAX:
            raise RemoteProtocolError("an event of too many elements")
        self._open.append(_Open(name, attributes))

    def end(self, name: str) -> None:
        done = self._open.pop()
        text = "".join(done.text)
        element = CotElement(done.name, done.attributes, text, tuple(done.children))
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element

    def say(self, text: str) -> None:
        if self._open:
            self._open[-1].text.append(text)


def encode(event: CotEvent) -> bytes:
    """Return the event as it stands in a stream."""
    times = {name: _written(getattr(event, name)) for name in _TIMES}
    head = {"version": "2.0", "uid": event.uid, "type": event.type, **times, "how": event.how}
    point = event.point
    where = {
        "lat": f"{point.latitude:.6f}",
        "lon": f"{point.longitude:.6f}",
        "hae": _metres(point.height),
        "ce": _metres(point.error),
        "le": _metres(None),
    }
    children = (CotElement("point", where), CotElement("detail", children=event.detail))
    whole = "".join(_pieces(CotElement("event", head, children=children)))
    return (_DECLARATION + whole).encode("utf-8", "replace")


def framed(raw: bytes) -> bytes:
    """Return an event that came in a stream as it goes on in another: what stood before it, where a
    document type could be, is left out. `raw` is one that `decode` takes."""
    begin = _BEGIN.search(raw)
    assert begin is not None, "decode has found it"
    return _DECLARATION.encode() + raw[begin.start() :]


def _metres(metres: float | None) -> str:
    return f"{UNKNOWN if metres is None else metres:.1f}"


def _written(moment: datetime) -> str:
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def _pieces(element: CotElement) -> Iterator[str]:
    attributes = "".join(
        f' {name}="{_escaped(value)}"' for name, value in element.attributes.items()
    )
    if not element.text and not element.children:
        yield f"<{element.name}{attributes}/>"
        return
    yield f"<{element.name}{attributes}>{_escaped(element.text)}"
    for child in element.children:
        yield from _pieces(child)
    yield f"</{element.name}>"


_REFUSED = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not have."""
_ESCAPES = str.maketrans({each: f"&#{ord(each)};" for each in "&<>\"'\t\n\r"})


def _escaped(text: str) -> str:
    return _REFUSED.sub("", text).translate(_ESCAPES)
