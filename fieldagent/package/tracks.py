"""Encodes positions for maps as GeoJSON (RFC 7946), GPX 1.1 and KML 2.2 (OGC 07-147r2)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import inf
from typing import Any

from fieldagent.package.package import Location, Waypoint
from fieldagent.package.payload import Identity
from fieldagent.package.writing import format_timestamp
from fieldagent.system.lazy_named_tuple import NamedTuple

CONTENT_TYPES = {
    "geojson": "application/geo+json",
    "gpx": "application/gpx+xml",
    "kml": "application/vnd.google-earth.kml+xml",
}
"""Media types by the names in `?format=`."""


class PlacedPoint(NamedTuple):
    """A position of a kit or person, or a point that a person has marked."""

    id: str
    sender: Identity
    device: str | None
    moment: datetime
    place: Location | Waypoint
    sos: bool = False


def make_geojson(places: Sequence[PlacedPoint]) -> dict[str, Any]:
    """Return a FeatureCollection of points: longitude, latitude, altitude if known (RFC 7946)."""
    return {"type": "FeatureCollection", "features": [_make_feature(each) for each in places]}


def _make_feature(point: PlacedPoint) -> dict[str, Any]:
    location = point.place
    coordinates = [location.longitude, location.latitude]
    properties: dict[str, Any] = {
        "sender": point.sender.id,
        "name": point.sender.name,
        "device": point.device,
        "timestamp": format_timestamp(point.moment),
        "sos": point.sos,
    }
    if isinstance(location, Waypoint):
        properties |= {"waypoint": location.name, "notes": location.notes}
    else:
        properties |= {
            "speedOverGround": location.speed_over_ground,
            "courseOverGround": location.course_over_ground,
        }
        coordinates += [] if location.altitude is None else [location.altitude]
    return {
        "type": "Feature",
        "id": point.id,
        "geometry": {"type": "Point", "coordinates": coordinates},
        "properties": properties,
    }


def make_gpx(places: Sequence[PlacedPoint], pause: float = inf) -> str:
    """Return a GPX document with a waypoint for each marked point, and a track for each device or
    member without a device. Tracks are in order of time. After a gap of more than `pause` seconds,
    a new segment begins.
    """
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<gpx version="1.1" creator="fieldagent" xmlns="http://www.topografix.com/GPX/1/1">',
    ]
    lines += [_format_point("wpt", each) for each in places if isinstance(each.place, Waypoint)]
    for title, points in _group_by_owner(places).items():
        lines.append(f"<trk><name>{_escape_text(title)}</name>")
        for leg in split_into_legs(points, pause):
            lines += ["<trkseg>", *(_format_point("trkpt", each) for each in leg), "</trkseg>"]
        lines.append("</trk>")
    return "\n".join([*lines, "</gpx>", ""])


def make_kml(places: Sequence[PlacedPoint], pause: float = inf) -> str:
    """Return a KML document with a line for each segment of a track, and the end point of each
    track.
    """
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<kml xmlns="http://www.opengis.net/kml/2.2"><Document>',
    ]
    lines += [
        _make_placemark(each.place.name, each, each.place.notes)
        for each in places
        if isinstance(each.place, Waypoint)
    ]
    for title, points in _group_by_owner(places).items():
        for leg in split_into_legs(points, pause):
            first, last = (format_timestamp(leg[at].moment) for at in (0, -1))
            lines.append(
                f"<Placemark><name>{_escape_text(title)}</name><TimeSpan><begin>{first}</begin>"
                f"<end>{last}</end></TimeSpan><LineString><coordinates>{_format_line(leg)}</coordinates>"
                "</LineString></Placemark>"
                if len(leg) > 1
                else _make_placemark(title, leg[0])
            )
        lines.append(_make_placemark(title, points[-1]))
    return "\n".join([*lines, "</Document></kml>", ""])


DOCUMENTS = {"gpx": make_gpx, "kml": make_kml}
"""Formats in XML, by their names in `?format=`."""


def split_into_legs(points: Sequence[PlacedPoint], pause: float) -> list[list[PlacedPoint]]:
    """Split a track at gaps of more than `pause` seconds. The points must be in order of time."""
    parts: list[list[PlacedPoint]] = []
    for each in points:
        if not parts or (each.moment - parts[-1][-1].moment).total_seconds() > pause:
            parts.append([])
        parts[-1].append(each)
    return parts


def _group_by_owner(places: Sequence[PlacedPoint]) -> dict[str, list[PlacedPoint]]:
    """Return the points by owner, each list in order of time."""
    tracks: dict[str, list[PlacedPoint]] = {}
    for each in sorted(places, key=lambda each: each.moment):
        if isinstance(each.place, Location):
            name = each.sender.name
            title = name if each.device is None else f"{name} ({each.device})"
            tracks.setdefault(title, []).append(each)
    return tracks


def _make_placemark(name: str, point: PlacedPoint, notes: str | None = None) -> str:
    description = "" if notes is None else f"<description>{_escape_text(notes)}</description>"
    return (
        f"<Placemark><name>{_escape_text(name)}</name>{description}"
        f"<TimeStamp><when>{format_timestamp(point.moment)}</when></TimeStamp>"
        f"<Point><coordinates>{_format_coordinates(point, _get_height(point))}</coordinates>"
        "</Point></Placemark>"
    )


def _format_line(points: Sequence[PlacedPoint]) -> str:
    """Return the coordinates of a line. KML readers need heights for all points of a line, or for
    none.
    """
    heights = [_get_height(each) for each in points]
    return " ".join(
        _format_coordinates(each, None if None in heights else height)
        for each, height in zip(points, heights, strict=True)
    )


def _get_height(point: PlacedPoint) -> float | None:
    return point.place.altitude if isinstance(point.place, Location) else None


def _format_coordinates(point: PlacedPoint, height: float | None) -> str:
    coordinates = f"{point.place.longitude:.7f},{point.place.latitude:.7f}"
    return coordinates if height is None else f"{coordinates},{height}"


def _format_point(tag: str, point: PlacedPoint) -> str:
    location = point.place
    height = words = ""
    if isinstance(location, Waypoint):
        notes = "" if location.notes is None else f"<desc>{_escape_text(location.notes)}</desc>"
        words = f"<name>{_escape_text(location.name)}</name>{notes}"
    elif location.altitude is not None:
        height = f"<ele>{location.altitude}</ele>"
    return (
        f'<{tag} lat="{location.latitude:.7f}" lon="{location.longitude:.7f}">{height}'
        f"<time>{format_timestamp(point.moment)}</time>{words}</{tag}>"
    )


_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# Do not use the standard function: its module, xml.sax.saxutils, imports HTTP and e-mail clients,
# which take 1 MB.


def _escape_text(text: str) -> str:
    """Escape a text for XML, and return it. Control characters are replaced, because XML 1.0 does
    not allow them.
    """
    visible = (each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return "".join(visible).translate(_ESCAPED)
