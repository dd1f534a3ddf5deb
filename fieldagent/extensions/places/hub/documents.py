"""File formats of a kit's weekly report: a table, a track, or a printable page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

from fieldagent.extensions.places.hub import print_page
from fieldagent.extensions.places.hub.kit_week import KitWeek
from fieldagent.hub.api.sos_table import make_cell
from fieldagent.package import tracks
from fieldagent.package.package import Location
from fieldagent.package.writing import format_clock_time, format_timestamp
from fieldagent.system.lazy_named_tuple import NamedTuple

COLUMNS = (
    *("what", "time", "kind", "state", "over", "came", "latitude", "longitude", "altitude"),
    *("speed", "course", "number", "unit", "mo", "mt", "hubCount", "operator", "money", "text"),
)
"""Columns of the table. The column `what` contains "position", "from kit", "to kit", "incident" or
"cost". Times are UTC."""


def encode_table(report: KitWeek) -> bytes:
    """Return a CSV file (RFC 4180) with one row for each position, item, incident and day of costs.
    The file is UTF-8 with a byte order mark, from which spreadsheet programs detect the encoding.
    """
    text = io.StringIO()
    rows = csv.DictWriter(text, COLUMNS)
    rows.writeheader()
    for row in _list_rows(report):
        rows.writerow({name: make_cell(value) for name, value in row.items()})
    return text.getvalue().encode("utf-8-sig", "replace")


def _list_rows(report: KitWeek) -> Iterator[dict[str, Any]]:
    for each in report.track:
        assert isinstance(each.place, Location)
        yield {
            "what": "position",
            "time": format_timestamp(each.moment),
            "kind": "SOS" if each.sos else "location",
            "latitude": f"{each.place.latitude:.7f}",
            "longitude": f"{each.place.longitude:.7f}",
            "altitude": each.place.altitude,
            "speed": each.place.speed_over_ground,
            "course": each.place.course_over_ground,
        }
    for sent in report.sent:
        yield {
            "what": "from kit",
            "time": format_clock_time(sent.at),
            "kind": "SOS" if sent.sos else sent.kind,
            "state": "stored",
            "came": format_clock_time(sent.came),
        }
    for delivery in report.deliveries:
        yield {
            "what": "to kit",
            "time": format_clock_time(delivery.at),
            "kind": delivery.kind,
            "state": delivery.state,
            "over": delivery.over,
            "text": delivery.reason,
        }
    for incident in report.incidents:
        yield {
            "what": "incident",
            "time": format_clock_time(incident["raised"]),
            "kind": incident["kind"],
            "state": incident["state"],
            "number": incident["id"],
            "text": print_page.describe_end(incident),
        }
    for day in report.costs:
        names = ("unit", "mo", "mt", "hubCount", "operator")
        yield {
            "what": "cost",
            "time": day["day"],
            "over": "satellite",
            **{name: day[name] for name in names},
            "money": day.get("money"),
            "text": day["difference"],
        }


class ReportFormat(NamedTuple):
    content_type: str
    write: Callable[[KitWeek], bytes]


def _make_track_encoder(write: Callable[..., str]) -> Callable[[KitWeek], bytes]:
    return lambda report: write(report.track, report.pause).encode("utf-8", "replace")


FORMATS = {
    "csv": ReportFormat("text/csv; charset=utf-8", encode_table),
    "gpx": ReportFormat(tracks.CONTENT_TYPES["gpx"], _make_track_encoder(tracks.make_gpx)),
    "kml": ReportFormat(tracks.CONTENT_TYPES["kml"], _make_track_encoder(tracks.make_kml)),
    "html": ReportFormat("text/html; charset=utf-8", print_page.render_page),
}
"""Formats by their names in `--format` and `?format=`."""
