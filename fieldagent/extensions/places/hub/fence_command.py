"""`fieldagent hub fence …`: areas on the map. The hub raises an alarm when a kit crosses the edge
of such an area.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fieldagent.cli.hub.opened_store import Call, Result, make_transaction
from fieldagent.extensions.places.hub import fences, shape
from fieldagent.extensions.places.hub.fences import FenceKits
from fieldagent.extensions.places.hub.shape import Shape, WrongShape
from fieldagent.hub.records.stored_entry import DAMAGED_ROW
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.system.exit_codes import REFUSED
from fieldagent.system.log_lines import print_failure
from fieldagent.system.terminal import escape_line
from fieldagent.system.wording import describe_reason

FILE_MAX = 1_000_000
"""Largest number of bytes of a file that contains a polygon."""


def add(arguments: argparse.Namespace) -> int:
    """Add a fence and print its number. Errors in the shape are reported before the database is
    opened.
    """
    try:
        outline = _parse_shape(arguments)
    except WrongShape as wrong:
        print_failure(escape_line(f"no fence was added: {wrong}"))
        return REFUSED

    @make_transaction
    def change(call: Call) -> Result:
        kits = FenceKits(arguments.kit, arguments.group)
        fence = fences.add_fence(
            *call.here, arguments.name, outline, arguments.alarm_on, kits, call.now
        )
        return {"id": fence, "name": arguments.name}

    return change(arguments)


def _parse_shape(arguments: argparse.Namespace) -> Shape:
    """Return the circle or polygon that the arguments describe. Raises WrongShape if it is
    invalid.
    """
    if arguments.circle is not None:
        return shape.parse_circle(arguments.circle)
    path: Path = arguments.polygon
    try:
        with path.open("rb") as file:
            content = file.read(FILE_MAX + 1)
        if len(content) > FILE_MAX:
            raise WrongShape(f"the file is larger than {FILE_MAX} bytes: simplify the shape")
        return shape.parse_polygon(load_document(content, members_max=FILE_MAX, parts_max=FILE_MAX))
    except OSError as error:
        raise WrongShape(describe_reason(error)) from None
    except NotJson as error:
        raise WrongShape(f"{path} is not JSON: {error}") from None
    except WrongShape as wrong:
        raise WrongShape(f"{path}: {wrong}") from None


@make_transaction
def show_fences(call: Call) -> Result:
    """List the fences. The output contains the shapes only if `--json` is given."""
    rows = fences.list_fences(*call.here)
    return rows if call.arguments.json else [_make_row(each) for each in rows]


def _make_row(fence: dict[str, Any]) -> dict[str, Any]:
    kits = "all"
    if fence["devices"] is not None:
        kits = ", ".join(each["name"] for each in fence["devices"]) or "none"
    if fence["group"] is not None:
        kits = f"{'those' if kits == 'all' else kits} of {fence['group']['name']}"
    return {
        "id": fence["id"],
        "name": fence["name"],
        "shape": describe_area(fence),
        "alarmOn": fence["alarmOn"],
        "kits": kits,
    }


def describe_area(area: dict[str, Any]) -> str:
    """Return a shape as a text that people can read."""
    if "circle" in area:
        circle = area["circle"]
        return f"{circle['radius']:g} m around {circle['latitude']:g} {circle['longitude']:g}"
    if "polygon" not in area:
        return DAMAGED_ROW
    return f"polygon of {sum(len(ring) - 1 for ring in area['polygon']['coordinates'])} points"


@make_transaction
def remove(call: Call) -> Result:
    """Remove the fence with a number. Its past alarms remain. Raises Refused if the workspace does
    not have the fence.
    """
    fences.remove_fence(*call.here, call.arguments.id, call.now)
    return {"id": call.arguments.id, "removed": True}
