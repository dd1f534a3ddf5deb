"""Positions as maps read them: GeoJSON (RFC 7946) and GPX 1.1."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from fieldagent.package.package import Location, Waypoint
from fieldagent.package.payload import Identity
from fieldagent.package.writing import write_timestamp

GEOJSON = "application/geo+json"
GPX = "application/gpx+xml"
FORMATS = ("geojson", "gpx")


class Placed(NamedTuple):
    """Where somebody was, or what they have marked."""

    id: str
    sender: Identity
    device: str | None
    moment: datetime
    place: Location | Waypoint
    sos: bool = False


def geojson(found: Sequence[Placed]) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": [_feature(each) for each in found]}


def _feature(each: Placed) -> dict[str, Any]:
    place = each.place
    where = [place.longitude, place.latitude]
    told: dict[str, Any] = {
        "sender": each.sender.id,
        "name": each.sender.name,
        "device": each.device,
        "timestamp": write_timestamp(each.moment),
        "sos": each.sos,
    }
    if isinstance(place, Waypoint):
        told |= {"waypoint": place.name, "notes": place.notes}
    else:
        told |= {
            "speedOverGround": place.speed_over_ground,
            "courseOverGround": place.course_over_ground,
        }
        where += [] if place.altitude is None else [place.altitude]
    return {
        "type": "Feature",
        "id": each.id,
        "geometry": {"type": "Point", "coordinates": where},
        "properties": told,
    }


def gpx(found: Sequence[Placed]) -> str:
    """What was marked, and a track for each device, or member who has none; each in the order of
    time."""
    tracks: dict[tuple[str, str | None], list[Placed]] = {}
    for each in found:
        if isinstance(each.place, Location):
            tracks.setdefault((each.sender.name, each.device), []).append(each)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<gpx version="1.1" creator="fieldagent" xmlns="http://www.topografix.com/GPX/1/1">',
    ]
    lines += [_point("wpt", each) for each in found if isinstance(each.place, Waypoint)]
    for (name, device), points in tracks.items():
        title = name if device is None else f"{name} ({device})"
        lines.append(f"<trk><name>{_text(title)}</name><trkseg>")
        lines += [_point("trkpt", each) for each in sorted(points, key=lambda each: each.moment)]
        lines.append("</trkseg></trk>")
    return "\n".join([*lines, "</gpx>", ""])


def _point(tag: str, each: Placed) -> str:
    place = each.place
    height = words = ""
    if isinstance(place, Waypoint):
        notes = "" if place.notes is None else f"<desc>{_text(place.notes)}</desc>"
        words = f"<name>{_text(place.name)}</name>{notes}"
    elif place.altitude is not None:
        height = f"<ele>{place.altitude}</ele>"
    return (
        f'<{tag} lat="{place.latitude:.7f}" lon="{place.longitude:.7f}">{height}'
        f"<time>{write_timestamp(each.moment)}</time>{words}</{tag}>"
    )


def _text(text: str) -> str:
    """XML 1.0 has no place for control characters."""
    return escape(
        "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    )
