"""Positions as maps read them: GeoJSON (RFC 7946) and GPX 1.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from fieldagent.hub.reading import ReadItem
from fieldagent.package.package import Location
from fieldagent.package.writing import write_timestamp

GEOJSON = "application/geo+json"
GPX = "application/gpx+xml"


def geojson(found: Sequence[ReadItem]) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": [_feature(each) for each in found]}


def _feature(each: ReadItem) -> dict[str, Any]:
    position = _position(each)
    place = [position.longitude, position.latitude]
    if position.altitude is not None:
        place.append(position.altitude)
    return {
        "type": "Feature",
        "id": each.request_id,
        "geometry": {"type": "Point", "coordinates": place},
        "properties": {
            "sender": each.sender.id,
            "name": each.sender.name,
            "device": each.device,
            "timestamp": write_timestamp(each.moment),
            "speedOverGround": position.speed_over_ground,
            "courseOverGround": position.course_over_ground,
            "sos": each.sos,
        },
    }


def gpx(found: Sequence[ReadItem]) -> str:
    """A track for each device, or member who has none; each in the order of time."""
    tracks: dict[tuple[str, str | None], list[ReadItem]] = {}
    for each in found:
        tracks.setdefault((each.sender.name, each.device), []).append(each)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<gpx version="1.1" creator="fieldagent" xmlns="http://www.topografix.com/GPX/1/1">',
    ]
    for (name, device), points in tracks.items():
        title = name if device is None else f"{name} ({device})"
        lines.append(f"<trk><name>{escape(_printable(title))}</name><trkseg>")
        lines += [_point(each) for each in sorted(points, key=lambda each: each.moment)]
        lines.append("</trkseg></trk>")
    return "\n".join([*lines, "</gpx>", ""])


def _point(each: ReadItem) -> str:
    position = _position(each)
    height = "" if position.altitude is None else f"<ele>{position.altitude}</ele>"
    return (
        f'<trkpt lat="{position.latitude:.7f}" lon="{position.longitude:.7f}">{height}'
        f"<time>{write_timestamp(each.moment)}</time></trkpt>"
    )


def _printable(text: str) -> str:
    """XML 1.0 has no place for control characters."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _position(each: ReadItem) -> Location:
    assert isinstance(each.item, Location), "positions are asked for by their kind"
    return each.item
