"""A kit's week as a single HTML page for printing, which needs no other files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from math import cos, radians, remainder
from typing import Any

from fieldagent.extensions.places.hub.kit_week import KitWeek
from fieldagent.package.tracks import PlacedPoint, split_into_legs
from fieldagent.package.writing import format_clock_time, format_minutes, format_timestamp

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
"""Content security policy. The page needs only its inline styles."""
SKETCH_SIZE, HIGH, BORDER = 640.0, 320.0, 8.0
"""Size of the sketch in SVG units."""

_STYLE = """
@page { size: A4; margin: 15mm }
body { font: 11pt/1.4 system-ui, sans-serif; color: #111; background: #fff; max-width: 50em;
  margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin: 1.5em 0 .3em }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .2em .6em .2em 0; border-bottom: 1px solid #999;
  vertical-align: top }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
.quiet { color: #555 } svg { width: 100%; height: auto; border: 1px solid #999 }
polyline { fill: none; stroke: #1a5fb4; stroke-width: 2 }
polyline.gap { stroke: #777; stroke-width: 1; stroke-dasharray: 4 4 } circle { fill: #1a5fb4 }
@media print { body { margin: 0; padding: 0; max-width: none } .screen { display: none }
  h2 { break-after: avoid } tr, svg { break-inside: avoid } thead { display: table-header-group } }
"""


def render_page(report: KitWeek) -> bytes:
    """Return the printable page with one week of a kit, in English, as UTF-8 bytes."""
    first, last = report.week.days
    title = f"{report.name}, {report.week.name}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        _render_paragraph(
            f"Kit {report.name} of {report.user}, {first} to {last} (UTC), as the hub knew it at "
            f"{format_clock_time(report.made)}."
        ),
        '<p class="screen quiet">Print this page, or save it as PDF by your browser\'s print.</p>',
        *_cut(report),
        *_render_positions(report),
        *_render_messages(report),
        *_render_incidents(report),
        *_render_costs(report),
    ]
    text = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )
    return text.encode("utf-8", "replace")


def describe_end(incident: dict[str, Any]) -> str:
    """Return the name of the person who closed the incident, and the reason. Return an empty text
    if the incident is open.
    """
    ends = [step for step in incident["timeline"] if step["event"] == "closed"]
    if incident["closed"] is None or not ends:
        return ""
    person = ends[-1]["by"]
    return ": ".join(filter(None, [person["name"] if person else "", ends[-1]["detail"]]))


def _cut(report: KitWeek) -> list[str]:
    return (
        []
        if report.is_complete
        else [_render_paragraph("There is more than a report holds: this is not all.")]
    )


def _render_positions(report: KitWeek) -> list[str]:
    parts = ["<h2>Where it was</h2>"]
    if report.unproved:
        parts.append(
            _render_paragraph(f"Left out: {report.unproved} positions, sender not verified.")
        )
    if not report.track:
        return [*parts, _render_paragraph("No position is known of this week.")]
    days: dict[str, list[PlacedPoint]] = {}
    for each in report.track:
        days.setdefault(each.moment.date().isoformat(), []).append(each)
    rows = [
        (
            day,
            len(positions),
            _format_clock(positions[0]),
            _format_clock(positions[-1]),
            _format_place(positions[-1]),
        )
        for day, positions in days.items()
    ]
    parts.append(_render_sketch(report.track, report.pause))
    head = ("Day (UTC)", "Positions", "First", "Last", "Last place")
    parts.append(_render_table(head, rows, numbers=(1,)))
    usual = format_minutes(int(report.pause))
    gaps = [
        (
            format_timestamp(gap_start),
            format_timestamp(ends),
            format_minutes(int((ends - gap_start).total_seconds() // 60 * 60)),
        )
        for gap_start, ends in report.find_gaps()
    ]
    if not gaps:
        return [*parts, _render_paragraph(f"No gap longer than {usual}.")]
    parts.append(
        _render_paragraph(f"Its position in between is unknown (gaps longer than {usual}, dotted):")
    )
    return [*parts, _render_table(("From", "To", "Length"), gaps)]


def _render_messages(report: KitWeek) -> list[str]:
    sent = [(kind, count) for kind, count in sorted(report.count_sent().items())]
    deliveries = [
        (kind, state, over or "-", count)
        for (kind, state, over), count in sorted(report.count_received().items())
    ]
    return [
        "<h2>From the kit</h2>",
        _render_table(("Kind", "Stored at the hub"), sent, numbers=(1,))
        if sent
        else _render_paragraph("Nothing."),
        "<h2>To the kit</h2>",
        _render_table(("Kind", "State", "Over", "Number"), deliveries, numbers=(3,))
        if deliveries
        else _render_paragraph("Nothing."),
        _render_paragraph(
            "stored: the kit has confirmed that it is on its disk. waiting, on its way: it has not."
            " expired, collapsed: it was not delivered, as its time was over or a newer one took"
            " its place."
        ),
    ]  # fmt: skip


def _render_incidents(report: KitWeek) -> list[str]:
    rows = [
        (
            f"{each['kind']} {each['id']}",
            format_clock_time(each["raised"]),
            each["state"],
            f"{each['seen']['by']['name']}, {format_clock_time(each['seen']['at'])}"
            if each["seen"]
            else "",
            "" if each["closed"] is None else format_clock_time(each["closed"]),
            describe_end(each),
        )
        for each in report.incidents
    ]
    head = ("Incident", "Raised", "State", "Seen by", "Closed", "By whom and why")
    return ["<h2>Incidents</h2>", _render_table(head, rows) if rows else _render_paragraph("None.")]


def _render_costs(report: KitWeek) -> list[str]:
    rows = [
        (
            each["day"],
            "satellite",
            each["mo"],
            each["mt"],
            each["hubCount"],
            each["unit"],
            each.get("money") or "",
            "not imported" if each["operator"] is None else each["operator"],
        )
        for each in report.costs
    ]
    head = (
        "Day (UTC)",
        "Bearer",
        "From it",
        "To it",
        "Together",
        "Unit",
        "Money",
        "Operator's count",
    )
    total = (
        [_render_paragraph(f"Together: {report.money}, as the hub counts.")] if report.money else []
    )
    return [
        "<h2>What it cost</h2>",
        _render_table(head, rows, numbers=(2, 3, 4))
        if rows
        else _render_paragraph("Nothing was counted."),
        *total,
        _render_paragraph("The hub does not count the bytes of one kit over IP, SMS and radio."),
    ]


def _render_sketch(track: Sequence[PlacedPoint], pause: float) -> str:
    """Return a map of the track as SVG, with north at the top. Gaps are dotted."""
    middle, east = track[0].place.latitude, track[0].place.longitude
    flat = {
        id(each): (
            remainder(each.place.longitude - east, 360.0) * cos(radians(middle)),
            -each.place.latitude,
        )
        for each in track
    }
    xs, ys = ([place[axis] for place in flat.values()] for axis in (0, 1))
    scale = min(
        (SKETCH_SIZE - 2 * BORDER) / max(max(xs) - min(xs), 1e-6),
        (HIGH - 2 * BORDER) / max(max(ys) - min(ys), 1e-6),
    )

    def format_point(point: PlacedPoint) -> str:
        x, y = flat[id(point)]
        return f"{BORDER + (x - min_x) * scale:.1f},{BORDER + (y - min_y) * scale:.1f}"

    min_x, min_y = min(xs), min(ys)
    parts = split_into_legs(track, pause)
    strokes = [_render_stroke("", map(format_point, leg)) for leg in parts]
    strokes += [
        _render_stroke("gap", map(format_point, (before[-1], after[0])))
        for before, after in pairwise(parts)
    ]
    x, y = format_point(track[-1]).split(",")
    return (
        f'<svg viewBox="0 0 {SKETCH_SIZE:.0f} {HIGH:.0f}" role="img" aria-label="The track, north'
        ' up">'
        f'{"".join(strokes)}<circle cx="{x}" cy="{y}" r="4"/></svg>'
    )


def _render_stroke(look: str, points: Iterable[str]) -> str:
    return f'<polyline class="{look}" points="{" ".join(points)}"/>'


def _format_clock(point: PlacedPoint) -> str:
    return point.moment.strftime("%H:%M")


def _format_place(point: PlacedPoint) -> str:
    return f"{point.place.latitude:.5f} {point.place.longitude:.5f}"


def _render_paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _render_table(
    head: Sequence[str], rows: Sequence[Sequence[Any]], *, numbers: Sequence[int] = ()
) -> str:
    """Return an HTML table. `numbers` are the indexes of columns that are aligned to the right."""

    def line(cells: Sequence[Any], tag: str) -> str:
        marks = (' class="number"' if column in numbers else "" for column in range(len(cells)))
        parts = (
            f"<{tag}{mark}>{escape(str(each))}</{tag}>"
            for mark, each in zip(marks, cells, strict=True)
        )
        return f"<tr>{''.join(parts)}</tr>"

    body = "\n".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(head, 'th')}</thead><tbody>\n{body}\n</tbody></table>"
