"""The command line of `fieldagent hub fence`."""

from __future__ import annotations

from pathlib import Path

from fieldagent.cli.hub.action import action, number
from fieldagent.cli.subcommand import Subparsers, command

TELLS = ("both", "enter", "leave")


def add_places(actions: Subparsers) -> None:
    _add_fence(actions)


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
