"""Encodes and decodes the items of an envelope: positions, waypoints, incident updates, and texts,
which may be canned (`docs/reference/on-air.md`).
"""

from __future__ import annotations

import struct
from typing import Any

from fieldagent.package import canned
from fieldagent.package.package import (
    ALTITUDE_MAX,
    ALTITUDE_MIN,
    SPEED_MAX_M_S,
    IncidentState,
    IncidentUpdate,
    Location,
    PositionSource,
    Waypoint,
    convert_to_date,
)
from fieldagent.wire.seal import TAG_BYTES
from fieldagent.wire.strict_cbor import expect, is_in_range, is_int, read_bytes, read_text
from fieldagent.wire.track import LATITUDE_MAX, LONGITUDE_MAX, UNIT, TrackFix

_POSITION = struct.Struct(">ii")
"""Latitude and longitude in 1e-7 degree."""
_SOURCES = (
    PositionSource.GPS,
    PositionSource.BROWSER,
    PositionSource.TYPED,
    PositionSource.LAST,
)
"""Sources of a position, by their numbers on the air."""


def encode_position(latitude: float, longitude: float) -> bytes:
    """Encode a position in degrees as 8 bytes, big-endian, in units of 1e-7 degree."""
    return _POSITION.pack(round(latitude * 1e7), round(longitude * 1e7))


def decode_position(value: Any) -> tuple[float, float]:
    """Decode a position, and return its latitude and longitude in degrees. Raises ValueError if the
    position is not on earth.
    """
    expect(is_position(value), "position of 8 bytes")
    latitude, longitude = _POSITION.unpack(value)
    expect(abs(latitude) <= 900_000_000 and abs(longitude) <= 1_800_000_000, "place on earth")
    return latitude / 1e7, longitude / 1e7


def encode_location(item: Location) -> list[Any]:
    """Encode a position as the elements of an entry: position, altitude in m, speed in 0.1 m/s,
    course in degrees from -180 to 179, and the source if known.
    """
    speed, course = item.speed_over_ground, item.course_over_ground
    source = [] if item.source is None else [_SOURCES.index(item.source)]
    return [
        encode_position(item.latitude, item.longitude),
        None if item.altitude is None else round(item.altitude),
        None if speed is None else round(speed * 10),
        # A course west of south is negative, so that every course fits into two bytes.
        None if course is None else (round(course) + 180) % 360 - 180,
        *source,
    ]


def decode_location(
    time: int,
    position: Any,
    altitude: Any = None,
    speed: Any = None,
    course: Any = None,
    source: Any = None,
) -> Location:
    """Parse the elements of a position. `time` is Unix time, `speed` is in 0.1 m/s. Raises
    ValueError if an element is out of range.
    """
    latitude, longitude = decode_position(position)
    expect(altitude is None or is_in_range(altitude), "altitude in metres")
    expect(speed is None or is_in_range(speed, minimum=0), "speed in 0.1 m/s")
    # A receiver without a fix may report values out of range. Drop such values, but keep the
    # position.
    if altitude is not None and not ALTITUDE_MIN <= altitude <= ALTITUDE_MAX:
        altitude = None
    if speed is not None and speed > SPEED_MAX_M_S * 10:
        speed = None
    expect(course is None or is_in_range(course, minimum=-180, maximum=179), "course in degrees")
    expect(source is None or is_in_range(source, minimum=0, maximum=255), "source of a position")
    return Location(
        latitude,
        longitude,
        convert_to_date(time),
        None if altitude is None else float(altitude),
        None if speed is None else speed / 10,
        None if course is None else float(course % 360),
        # Leave out a source that only a later version knows.
        _SOURCES[source] if source is not None and source < len(_SOURCES) else None,
    )


def make_track_fix(sequence: int, time: int, item: Location) -> TrackFix | None:
    """Return the position as a fix of a track, or None if a track cannot contain all members of the
    position.
    """
    places = [round(degrees * 1e7) for degrees in (item.latitude, item.longitude)]
    if any(place % UNIT for place in places) or item.source is not None or not is_in_range(time):
        return None
    _, *members = encode_location(item)
    return TrackFix(sequence, time, *(place // UNIT for place in places), *members)


def make_location(fix: TrackFix) -> Location:
    """Return a fix of a track as an ordinary position. Raises ValueError for an impossible number,
    time or position.
    """
    expect(is_in_range(fix.sequence, minimum=0) and is_in_range(fix.time), "number and time")
    in_degrees = abs(fix.latitude) <= LATITUDE_MAX and abs(fix.longitude) <= LONGITUDE_MAX
    expect(in_degrees, "place on earth")
    position = encode_position(fix.latitude * UNIT / 1e7, fix.longitude * UNIT / 1e7)
    return decode_location(fix.time, position, fix.altitude, fix.speed, fix.course)


def is_position(value: Any) -> bool:
    """Return True if the value has the form of a position. The numbers are not checked."""
    return isinstance(value, bytes) and len(value) == _POSITION.size


def decode_waypoint(time: int, position: Any, name: Any, notes: Any = None) -> Waypoint:
    """Parse the elements of a waypoint. `time` is Unix time. Raises ValueError for malformed
    data.
    """
    latitude, longitude = decode_position(position)
    notes = None if notes is None else read_text(notes)
    return Waypoint(latitude, longitude, read_text(name), convert_to_date(time), notes)


_STATES_BY_NUMBER = (
    IncidentState.OPEN,
    IncidentState.SEEN,
    IncidentState.CLOSED,
    IncidentState.CALLED_OFF,
)
"""States by their numbers on the air."""


def decode_incident_update(
    time: int,
    incident: Any,
    state: Any,
    station: Any = None,
    person: Any = None,
    text: Any = None,
    proof: Any = None,
) -> IncidentUpdate:
    """Parse the members of an entry after its time. Raises RemoteProtocolError for malformed
    data.
    """
    expect(is_in_range(incident, minimum=0), "number of the incident")
    expect(is_in_range(state, minimum=0, maximum=len(_STATES_BY_NUMBER) - 1), "word known here")
    expect(station is None or is_in_range(station, minimum=1), "station")
    expect(proof is None or len(read_bytes(proof)) == TAG_BYTES, "proof of 8 bytes")
    person_name = "" if person is None else read_text(person)
    update_text = "" if text is None else decode_text(text)
    return IncidentUpdate(
        incident, _STATES_BY_NUMBER[state], station or 0, person_name, update_text, proof or b""
    )


def encode_incident_update(update: IncidentUpdate) -> list[Any]:
    """Encode an incident update: return the members of its entry."""
    text = encode_text(update.text) if update.text else None
    members = (update.station or None, update.by or None, text, update.proof or None)
    return [update.incident, _STATES_BY_NUMBER.index(update.state), *members]


def decode_text(value: Any) -> str:
    """Parse a text or the number of a canned text, and return the text. Raises RemoteProtocolError
    for malformed data.
    """
    if is_int(value):
        expect(is_in_range(value, minimum=0, maximum=canned.NUMBER_MAX), "number of canned words")
        return canned.get_text(value)
    return read_text(value)


def encode_text(text: str) -> str | int:
    """Return the text, or the number of an equal canned text."""
    number = canned.find_number(text)
    return text if number is None else number
