"""The command line of `fieldagent hub fence`, `hub route` and `hub report`."""

from __future__ import annotations

from pathlib import Path

from fieldagent.cli.argument_types import wait
from fieldagent.cli.hub.action import ALARMS, KITS, action, number
from fieldagent.cli.subcommand import Subparsers, command

FORMATS = ("csv", "gpx", "kml", "html")
TELLS = ("both", "enter", "leave")


def add_report(actions: Subparsers) -> None:
    """Add `report` to `fieldagent hub`."""
    summary = "write a report of a kit's week: track, messages, SOS, cost"
    report = action(actions, "report", ("cli.hub.report", "write"), summary, group=KITS)
    report.add_argument(
        "--kit", required=True, metavar="NAME", help="name, number or IMEI of the kit"
    )
    report.add_argument("--week", metavar="2026-W47", help="week in UTC, from Monday (this week)")
    report.add_argument(
        "--format",
        choices=FORMATS,
        default="html",
        help="csv: a table; gpx: the track; html: a page to print or save as PDF",
    )


def add_fence(actions: Subparsers) -> None:
    """Add `fence` with its actions to `fieldagent hub`."""
    summary = "manage fences: an alarm if a kit enters or leaves an area"
    fence = command(actions, "fence", None, summary, group=ALARMS).add_subparsers(metavar="ACTION")
    add = action(fence, "add", ("cli.hub.fence", "add"), "add a fence")
    add.add_argument("name", help="name, such as 'North face'")
    drawn = add.add_mutually_exclusive_group(required=True)
    drawn.add_argument("--circle", metavar="LAT,LON,METRES", help="circle, such as 45.91,7.61,500")
    drawn.add_argument(
        "--polygon",
        type=Path,
        metavar="FILE.geojson",
        help="a GeoJSON Polygon of at most 500 points",
    )
    add.add_argument(
        "--tells", choices=TELLS, default="both", help="crossing that raises an alarm (both)"
    )
    add.add_argument(
        "--kit",
        action="append",
        default=[],
        metavar="NAME",
        help="only for this kit; can be repeated (all kits)",
    )
    add.add_argument("--group", default="", help="only for kits of this group's users")
    action(fence, "list", ("cli.hub.fence", "list"), "list fences")
    remove = action(fence, "remove", ("cli.hub.fence", "remove"), "remove a fence")
    remove.add_argument("id", type=number)


def add_route(actions: Subparsers) -> None:
    """Add `route` with its actions to `fieldagent hub`."""
    summary = "manage routes: an alarm if a kit is not at a place in time"
    route = command(actions, "route", None, summary, group=ALARMS).add_subparsers(metavar="ACTION")
    add = action(route, "add", ("cli.hub.route", "add"), "expect a kit at a place by a time")
    add.add_argument("--kit", required=True, metavar="NAME", help="name, number or IMEI of the kit")
    add.add_argument(
        "--to", required=True, metavar="LAT,LON,METRES", help="place, such as 45.91,7.61,300"
    )
    add.add_argument(
        "--by", required=True, metavar="TIME", help="18:00 (UTC), or 2026-11-26T18:00+01:00"
    )
    add.add_argument(
        "--margin",
        type=wait,
        default=1800,
        metavar="30m",
        help="time after that until the kit is overdue (30m)",
    )
    add.add_argument("--name", default="", help="name of the place, for people")
    action(route, "list", ("cli.hub.route", "list"), "list routes, newest first")
    end = action(route, "end", ("cli.hub.route", "end"), "end a route")
    end.add_argument("id", type=number)
    end.add_argument("why", metavar="WHY")
    end.add_argument("--by", required=True, metavar="USER", help="user who ends it")
