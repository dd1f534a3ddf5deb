"""Encoding of APRS positions and messages in AX.25 UI frames (Protocol Reference 1.0.1, with the
additions of 1.1 and 1.2).

This module parses positions in all forms (chapters 8 to 10; the form of chapter 8 can contain a
time), and objects and items (chapter 11). It also parses messages, acknowledgements and rejections
(chapter 14), and all of these in third-party packets (chapter 17). It encodes only messages,
acknowledgements and rejections.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.ax25 import Callsign, Frame, parse_callsign
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError

TEXT_MAX_BYTES = 67
"""Largest number of bytes of a message. Chapter 14 counts characters."""
ID_MAX = 5
ADDRESSEE = 9
_KNOT = 1852 / 3600
_FOOT = 0.3048
_THIRD_PARTY = re.compile(
    r"([A-Z0-9]{1,9}(?:-[A-Z0-9]{1,2})?)>([A-Z0-9-]+)(?:[^A-Z0-9:-][^:]*)?:(.*)", re.S
)
_ADDRESSED = re.compile(r":(.{9}):", re.S)
_ALTITUDE = re.compile(r"/A=(-?[0-9]{5,6})")
_BY_INTERNET = ("TCPIP", "TCPXX")
"""Callsigns in a path that show that a gateway received the packet from APRS-IS."""


class AprsPosition(NamedTuple):
    latitude: float
    longitude: float
    altitude: float | None = None
    """Altitude in metres."""
    speed: float | None = None
    """Speed in metres per second."""
    course: float | None = None
    """Course in degrees."""
    comment: str = ""
    ambiguity: int = 0
    """Number of digits that the sender omitted, 0 to 4."""
    emergency: bool = False
    when: str = ""
    """Time in its original form, which `parse_date` parses; empty if there is none."""


class AprsEmergency(NamedTuple):
    """A Mic-E emergency whose position cannot be parsed."""

    fault: str
    """Error in the position."""


class AprsObject(NamedTuple):
    """A station's report about another object or place."""

    name: str
    there: AprsPosition
    is_alive: bool
    """False if the report removes the object from the map."""


class AprsMessage(NamedTuple):
    to: str
    text: str
    id: str = ""
    """Id for the acknowledgement; empty if the sender wants no acknowledgement."""
    acknowledges: str = ""
    """Id of another message that this message acknowledges (reply-acks of APRS 1.1)."""


class AprsAnswer(NamedTuple):
    """Acknowledgement or rejection of a message by the addressee's station."""

    to: str
    id: str
    has_it: bool
    """True if the station has the message; False if the station rejected it."""


class AprsHeard(NamedTuple):
    """Sender and content of one received frame."""

    source: str
    what: AprsPosition | AprsEmergency | AprsObject | AprsMessage | AprsAnswer | None
    """Content of the frame, or None if its type is not supported."""
    over_internet: bool = False
    """True if the frame arrived over APRS-IS. In this case, the sender may be far away."""


def parse_frame(frame: Frame) -> AprsHeard:
    """Parse a frame. Raises RemoteProtocolError if its contents are invalid for their type."""
    text = frame.info.decode("latin-1")
    if text.startswith("}"):
        return _parse_third_party(text[1:])
    far = any(call.name in _BY_INTERNET for call in frame.digipeaters)
    return AprsHeard(str(frame.source), _parse_content(text, frame.destination), far)


def _parse_third_party(text: str) -> AprsHeard:
    """Parse `SOURCE>DESTINATION,PATH:information`, which a gateway has received elsewhere."""
    match = _THIRD_PARTY.fullmatch(text)
    if match is None:
        raise RemoteProtocolError("a third-party packet without a header")
    source, to, info = match.groups()
    if info.startswith("}"):
        raise RemoteProtocolError("a third-party packet inside another")
    try:
        destination = parse_callsign(to)
    except LocalProtocolError:
        destination = Callsign("APRS")
    return AprsHeard(source, _parse_content(info, destination), over_internet=True)


def _parse_content(
    text: str, to: Callsign
) -> AprsPosition | AprsEmergency | AprsObject | AprsMessage | AprsAnswer | None:
    kind = text[:1]
    if kind == ":":
        return _parse_message(text)
    if kind and kind in "!=":
        return _parse_position(text[1:])
    if kind and kind in "/@":
        return _parse_position(text[8:])._replace(when=text[1:8])
    if kind and kind in ";)":
        return _parse_object(text)
    if kind and kind in "`'\x1c\x1d":
        return _parse_mic_e(text, to)
    return None


def _parse_message(text: str) -> AprsMessage | AprsAnswer | None:
    """Parse `:ADDRESSEE:text{id`. The text of an acknowledgement is `ack` and the id, that of a
    rejection `rej` and the id. Return None if there is no addressee.
    """
    head = _ADDRESSED.match(text)
    if head is None:
        return None
    # Some radios send lower-case letters, and a blank or NUL after the id.
    addressee, said = head[1].strip().upper(), text[head.end() :].rstrip("\0 \t\r\n")
    if answer := re.fullmatch(r"(ack|rej)([A-Za-z0-9]{1,5})(?:\}.*)?", said):
        return AprsAnswer(addressee, answer[2], answer[1] == "ack")
    body, mark, number = said.rpartition("{")
    ids = re.fullmatch(r"([A-Za-z0-9]{1,5})(?:\}([A-Za-z0-9]{0,5}))?", number)
    if mark and ids:
        return AprsMessage(addressee, _decode_text(body), ids[1], ids[2] or "")
    return AprsMessage(addressee, _decode_text(said))


def _decode_text(text: str) -> str:
    """Decode a text as UTF-8, which is the encoding since APRS 1.2. If this fails, decode it as
    Latin-1, because the encoding of older texts is unknown.
    """
    raw = text.encode("latin-1")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return text


def _parse_object(text: str) -> AprsObject:
    """Parse `;NAME *111111z` or `)NAME!`, followed by a position. Raises RemoteProtocolError for
    malformed data.
    """
    match = re.match(r";(.{9})([*_])(.{7})|\)([^!_]{3,9})([!_])", text, re.S)
    if match is None:
        raise RemoteProtocolError("an object without a name")
    name, alive, time_text, of_item, item_alive = match.groups()
    position = _parse_position(text[match.end() :])._replace(when=time_text or "")
    return AprsObject(_decode_text(name or of_item).strip(), position, (alive or item_alive) != "_")


def parse_date(when: str, now: datetime) -> datetime | None:
    """Return the time of a position in UTC (chapter 6). This is the last moment with the day, hour
    and minute in `when`, or with the hour, minute and second. Return None if the time is invalid,
    or if it is a local time, whose offset is unknown. `now` is in UTC.
    """
    if not re.fullmatch("[0-9]{6}[zh]", when):
        return None
    first, second, third = (int(when[at : at + 2]) for at in (0, 2, 4))
    try:
        if when[6] == "h":
            moment = now.replace(hour=first, minute=second, second=third, microsecond=0)
            return moment if moment <= now + _CLOCK_LEAD_MAX else moment - timedelta(days=1)
        moment = now.replace(day=first, hour=second, minute=third, second=0, microsecond=0)
        if moment > now + _CLOCK_LEAD_MAX:
            month_before = now.replace(day=1) - timedelta(days=1)
            moment = moment.replace(year=month_before.year, month=month_before.month)
    except ValueError:
        return None
    return moment.astimezone(UTC)


_CLOCK_LEAD_MAX = timedelta(minutes=5)
"""Largest time by which a sender's clock may be fast."""


def _parse_position(text: str) -> AprsPosition:
    """Parse a compressed or uncompressed position. Raises RemoteProtocolError for malformed
    data.
    """
    if not text[:1].isdigit() and not text.startswith(" "):
        return _parse_compressed(text)
    form = r"([0-9 ]{4}\.[0-9 ]{2})([NSns]).([0-9 ]{5}\.[0-9 ]{2})([EWew])(.)(.*)"
    match = re.fullmatch(form, text, re.S)
    if match is None:
        raise RemoteProtocolError("a position without latitude and longitude")
    north, ns, east, ew, symbol, rest = match.groups()
    ambiguity = max(north.count(" "), east.count(" "))
    latitude = _parse_degrees(north, 2) * (-1 if ns in "Ss" else 1)
    longitude = _parse_degrees(east, 3) * (-1 if ew in "Ww" else 1)
    speed = course = None
    moves = re.match(r"([0-9]{3})/([0-9]{3})", rest)
    if moves and symbol != _WEATHER:
        course, speed = _read_course(int(moves[1])), int(moves[2]) * _KNOT
        rest = rest[7:]
    return _check_position(latitude, longitude, rest, ambiguity, speed, course)


def _read_course(degrees: int) -> float | None:
    """Return the course in degrees. Return None for 0, which means unknown. North is 360."""
    return float(degrees % 360) if 0 < degrees <= 360 else None


def _parse_degrees(text: str, whole: int) -> float:
    """Parse `DDMM.mm`. Spaces replace omitted digits. The result is the middle of the possible
    range.
    """
    if " " in text[:whole] or " " in text.replace(".", "").rstrip(" "):
        raise RemoteProtocolError("a position that leaves out other digits than the last")
    minutes = text[whole:]
    left_out = minutes.count(" ")
    value = float(minutes.replace(" ", "0"))
    if value >= 60:
        raise RemoteProtocolError("a position of more than 60 minutes")
    return int(text[:whole]) + (value + _RANGE_MIDDLES_MIN[left_out]) / 60


_RANGE_MIDDLES_MIN = (0.0, 0.05, 0.5, 5.0, 30.0)
"""Minutes from the beginning to the middle of the range, by the number of omitted digits."""
_WEATHER = "_"
"""Symbol of a weather station. In its position, the course field contains the wind direction."""


def _parse_compressed(text: str) -> AprsPosition:
    """Parse a compressed position (chapter 9): symbol table, latitude and longitude with 4 base-91
    characters each, symbol, and 2 and 1 further characters.
    """
    if not re.match(r"[/\\A-Za-j][!-{]{8}.{4}", text, re.S):
        raise RemoteProtocolError("an invalid compressed position")
    latitude = 90 - _decode_base_91(text[1:5]) / 380_926
    longitude = -180 + _decode_base_91(text[5:9]) / 190_463
    altitude = speed = course = None
    if re.fullmatch("[!-{]{3}", text[10:13]):
        first, second, kind = (ord(each) - 33 for each in text[10:13])
        if kind & 0x18 == 0x10:
            altitude = 1.002 ** (first * 91 + second) * _FOOT
        elif first < 90 and text[9] != _WEATHER:
            course, speed = float(first * 4), (1.08**second - 1) * _KNOT
    return _check_position(latitude, longitude, text[13:], 0, speed, course, altitude=altitude)


def _decode_base_91(text: str) -> int:
    value = 0
    for each in text:
        value = value * 91 + ord(each) - 33
    return value


_CUSTOM, _OLD_LETTERS = "ABCDEFGHIJK", "PQRSTUVWXYZ"


def _parse_mic_e(text: str, to: Callsign) -> AprsPosition | AprsEmergency:
    """Parse a Mic-E beacon. The destination's first three characters show an emergency, so the kit
    recognises an emergency even if the position cannot be parsed. Raises RemoteProtocolError for
    malformed data.
    """
    try:
        return _parse_mic_e_position(text, to)
    except RemoteProtocolError as fault:
        if _EMERGENCY.match(to.name):
            return AprsEmergency(str(fault))
        raise


_EMERGENCY = re.compile("[0-9L]{3}")
"""Beginning of the destination in an emergency, in which the three message bits are 0 (chapter
10)."""


def _parse_mic_e_position(text: str, to: Callsign) -> AprsPosition:
    """Parse the position in a Mic-E beacon (chapter 10). The six characters of the destination
    contain the latitude. The text contains the rest.
    """
    if len(to.name) != 6 or len(text) < 9:
        raise RemoteProtocolError("a Mic-E position that is cut short")
    digits, bits = "", []
    for each in to.name:
        if each in "KLZ":
            digits += " "
        elif each.isdigit():
            digits += each
        elif each in _CUSTOM + _OLD_LETTERS:
            digits += str((_CUSTOM if each in _CUSTOM else _OLD_LETTERS).index(each))
        else:
            raise RemoteProtocolError("an invalid Mic-E latitude")
        bits.append(0 if each.isdigit() or each == "L" else 1)
    latitude = _parse_degrees(f"{digits[:4]}.{digits[4:]}", 2)
    north, hundred, west = (to.name[place] >= "P" for place in (3, 4, 5))
    raw = [ord(each) - 28 for each in text[1:7]]
    if not all(0 <= each <= 99 for each in raw):
        raise RemoteProtocolError("an invalid Mic-E longitude")
    degrees = raw[0] + (100 if hundred else 0)
    degrees -= 80 if 180 <= degrees <= 189 else 190 if 190 <= degrees <= 199 else 0
    minutes = raw[1] - 60 if raw[1] >= 60 else raw[1]
    longitude = degrees + (minutes + raw[2] / 100) / 60
    speed = raw[3] * 10 + raw[4] // 10
    course = raw[4] % 10 * 100 + raw[5]
    speed -= 800 if speed >= 800 else 0
    course -= 400 if course >= 400 else 0
    return _check_position(
        latitude if north else -latitude,
        -longitude if west else longitude,
        text[9:],
        digits.count(" "),
        speed * _KNOT,
        _read_course(course),
        emergency=bits[:3] == [0, 0, 0],
        altitude=_parse_mic_e_altitude(text[9:]),
    )


def _parse_mic_e_altitude(text: str) -> float | None:
    """Parse three base-91 characters before `}`: the number of metres above a level 10 km below the
    sea.
    """
    match = re.match(r".?([!-{]{3})\}", text, re.S)
    return None if match is None else float(_decode_base_91(match[1]) - 10_000)


def _check_position(
    latitude: float,
    longitude: float,
    rest: str,
    ambiguity: int,
    speed: float | None = None,
    course: float | None = None,
    *,
    altitude: float | None = None,
    emergency: bool = False,
) -> AprsPosition:
    if abs(latitude) > 90 or abs(longitude) > 180:
        raise RemoteProtocolError("a position that is not on earth")
    if match := _ALTITUDE.search(rest):
        altitude = int(match[1]) * _FOOT
        rest = rest.replace(match[0], "", 1)
    return AprsPosition(
        latitude,
        longitude,
        altitude,
        speed,
        course,
        _decode_text(rest).strip(),
        ambiguity,
        emergency,
    )


def encode_message(addressee: str, text: str, message_id: str) -> bytes:
    """Return the information field of a message. Raises LocalProtocolError if the id or the text is
    too long, or contains a character that is not allowed.
    """
    if not re.fullmatch(f"[A-Za-z0-9]{{1,{ID_MAX}}}", message_id):
        raise LocalProtocolError(
            f"{message_id!r} is not an id of up to {ID_MAX} letters and digits"
        )
    body = text.encode()
    if len(body) > TEXT_MAX_BYTES or any(each in text for each in "|~{\r\n"):
        raise LocalProtocolError(f"a message has at most {TEXT_MAX_BYTES} bytes, and no | ~ {{")
    return _encode_addressed(addressee, body + b"{" + message_id.encode())


def encode_ack_or_reject(addressee: str, message_id: str, *, is_accepted: bool) -> bytes:
    """Return the information field that acknowledges or rejects a message."""
    return _encode_addressed(addressee, f"{'ack' if is_accepted else 'rej'}{message_id}".encode())


def _encode_addressed(addressee: str, body: bytes) -> bytes:
    return f":{addressee.ljust(ADDRESSEE)[:ADDRESSEE]}:".encode() + body
