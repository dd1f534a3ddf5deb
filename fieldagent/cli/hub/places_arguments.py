"""The command line of `fieldagent hub fence`, `hub route`, `hub quiet` and `hub report`."""

from __future__ import annotations

from pathlib import Path

from fieldagent.cli.argument_types import wait
from fieldagent.cli.hub.action import action, number
from fieldagent.cli.subcommand import Subparsers, command

FORMATS = ("csv", "gpx", "kml", "html")
TELLS = ("both", "enter", "leave")


def add_places(actions: Subparsers) -> None:
    """Add `fence`, `route`, `quiet` and `report` with their actions to `fieldagent hub`."""
    _add_fence(actions)
    _add_route(actions)
    _add_quiet(actions)
    summary = "write what a kit did in a week: where it was, messages, incidents, cost"
    report = action(actions, "report", ("cli.hub.report", "write"), summary)
    report.add_argument("--kit", required=True, metavar="NAME", help="its name, number or IMEI")
    report.add_argument("--week", metavar="2026-W47", help="in UTC, from Monday (this week)")
    report.add_argument(
        "--format",
        choices=FORMATS,
        default="html",
        help="a table, the track, or a page to print or save as PDF by a browser (html)",
    )


def _add_fence(actions: Subparsers) -> None:
    summary = "fences on the map: an alarm where a kit comes in or goes out"
    fence = command(actions, "fence", None, summary).add_subparsers(metavar="ACTION")
    add = action(fence, "add", ("cli.hub.fence", "add"), "add a fence")
    add.add_argument("name", help="such as 'North face'")
    drawn = add.add_mutually_exclusive_group(required=True)
    drawn.add_argument("--circle", metavar="LAT,LON,METRES", help="such as 45.91,7.61,500")
    drawn.add_argument(
        "--polygon",
        type=Path,
        metavar="FILE.geojson",
        help="a GeoJSON Polygon of 500 points at most",
    )
    add.add_argument("--tells", choices=TELLS, default="both", help="what is an alarm (both)")
    add.add_argument(
        "--kit",
        action="append",
        default=[],
        metavar="NAME",
        help="for this kit alone; may be given again (all kits)",
    )
    add.add_argument("--group", default="", help="for kits of this group's users alone")
    action(fence, "list", ("cli.hub.fence", "list"), "list fences")
    remove = action(fence, "remove", ("cli.hub.fence", "remove"), "remove a fence")
    remove.add_argument("id", type=number)


def _add_route(actions: Subparsers) -> None:
    summary = "where a kit is to be, and by when: an alarm where it is not"
    route = command(actions, "route", None, summary).add_subparsers(metavar="ACTION")
    add = action(route, "add", ("cli.hub.route", "add"), "expect a kit at a place by a time")
    add.add_argument("--kit", required=True, metavar="NAME", help="its name, number or IMEI")
    add.add_argument(
        "--to", required=True, metavar="LAT,LON,METRES", help="the place, such as 45.91,7.61,300"
    )
    add.add_argument(
        "--by", required=True, metavar="TIME", help="18:00 (UTC), or 2026-11-26T18:00+01:00"
    )
    add.add_argument(
        "--margin", type=wait, default=1800, metavar="30m", help="it is overdue after that (30m)"
    )
    add.add_argument("--name", default="", help="of the place, for people")
    action(route, "list", ("cli.hub.route", "list"), "list routes, the newest first")
    end = action(route, "end", ("cli.hub.route", "end"), "end one that nobody has to wait for")
    end.add_argument("id", type=number)
    end.add_argument("why", metavar="WHY")
    end.add_argument("--by", required=True, metavar="USER", help="who ends it")


def _add_quiet(actions: Subparsers) -> None:
    summary = "hours in which alarms wait until the morning; an SOS, or who is overdue, never waits"
    quiet = command(actions, "quiet", None, summary).add_subparsers(metavar="ACTION")
    hours = action(quiet, "set", ("cli.hub.quiet", "set"), "set quiet hours")
    hours.add_argument(
        "hours",
        metavar="22:00-06:00|none",
        help="local times: an SOS, or who is overdue, is told at once all the same",
    )
    hours.add_argument("--zone", default="UTC", help="such as Europe/Zurich (UTC)")
    hours.add_argument("--contact", type=number, help="of that one alone (the workspace's)")
    summary = "let a contact have its workspace's again"
    inherit = action(quiet, "inherit", ("cli.hub.quiet", "inherit"), summary)
    inherit.add_argument("contact", type=number)
    action(quiet, "list", ("cli.hub.quiet", "list"), "list quiet hours")
