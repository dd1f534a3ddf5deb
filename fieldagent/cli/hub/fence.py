"""`fieldagent hub fence …`: shapes on the map whose edge is watched."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fieldagent.cli.hub.opened_store import once, show, show_list
from fieldagent.hub.access import directory
from fieldagent.hub.places import fences, shape
from fieldagent.hub.places.fences import WhichKits
from fieldagent.hub.places.shape import Shape, WrongShape
from fieldagent.hub.records.stored_entry import DAMAGED_ROW
from fieldagent.hub.store.contract import Db
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.system.exit_codes import REFUSED
from fieldagent.system.log_lines import complain
from fieldagent.system.terminal import escaped
from fieldagent.system.wording import reason_of

FILE_MAX = 1_000_000
"""Bytes of a file with a polygon."""


def add(given: argparse.Namespace) -> int:
    """Add a fence, and print its number. What is wrong with the shape is told before the database
    is opened."""
    try:
        drawn = _drawn(given)
    except WrongShape as wrong:
        complain(escaped(f"no fence was added: {wrong}"))
        return REFUSED

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        kits = WhichKits(given.kit, given.group)
        fence = fences.add(db, workspace, given.name, drawn, given.tells, kits, now)
        return show(given, {"id": fence, "name": given.name})

    return once(given, change)


def _drawn(given: argparse.Namespace) -> Shape:
    """Raises WrongShape."""
    if given.circle is not None:
        return shape.read_circle(given.circle)
    path: Path = given.polygon
    try:
        with path.open("rb") as file:
            content = file.read(FILE_MAX + 1)
        if len(content) > FILE_MAX:
            raise WrongShape(f"it is larger than {FILE_MAX} bytes: simplify it")
        return shape.polygon(load_document(content, members_max=FILE_MAX, parts_max=FILE_MAX))
    except OSError as error:
        raise WrongShape(reason_of(error)) from None
    except NotJson as error:
        raise WrongShape(f"{path}: it is no JSON: {error}") from None
    except WrongShape as wrong:
        raise WrongShape(f"{path}: {wrong}") from None


def list(given: argparse.Namespace) -> int:  # noqa: A001
    """List the fences; the shapes themselves are in --json alone."""

    def look(db: Db, now: float) -> int:
        found = fences.listing(db, directory.workspace_of(db, given.workspace))
        return show_list(given, found if given.json else [_row(each) for each in found])

    return once(given, look)


def _row(told: dict[str, Any]) -> dict[str, Any]:
    kits = "all"
    if told["devices"] is not None:
        kits = ", ".join(each["name"] for each in told["devices"]) or "none"
    if told["group"] is not None:
        kits = f"{'those' if kits == 'all' else kits} of {told['group']['name']}"
    return {
        "id": told["id"],
        "name": told["name"],
        "shape": in_words(told),
        "tells": told["tells"],
        "kits": kits,
    }


def in_words(told: dict[str, Any]) -> str:
    """Return a shape as people read it."""
    if "circle" in told:
        circle = told["circle"]
        return f"{circle['radius']:g} m around {circle['latitude']:g} {circle['longitude']:g}"
    if "polygon" not in told:
        return DAMAGED_ROW
    return f"polygon of {sum(len(ring) - 1 for ring in told['polygon']['coordinates'])} points"


def remove(given: argparse.Namespace) -> int:
    """Remove a fence by its number; what it has told stays. Refused where the workspace has none of
    it."""

    def change(db: Db, now: float) -> int:
        fences.remove(db, directory.workspace_of(db, given.workspace), given.id, now)
        return show(given, {"id": given.id, "removed": True})

    return once(given, change)
