"""`fieldagent hub route …`: places at which a kit must arrive by a time."""

from __future__ import annotations

import argparse
import re
from typing import Any

from fieldagent.cli.hub.fence import in_words
from fieldagent.cli.hub.opened_store import once, show, show_list
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.places import routes, shape
from fieldagent.hub.places.routes import RoutePlan
from fieldagent.hub.places.shape import WrongShape
from fieldagent.hub.records.sos import Who
from fieldagent.hub.store.contract import Db
from fieldagent.package.reading import WrongValue, read_timestamp
from fieldagent.package.writing import clock_time
from fieldagent.system.span import span

DAY = 86_400.0
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)


def add(arguments: argparse.Namespace) -> int:
    """Add a route for a kit, and print its number and both times. Refused if --to is not a
    circle.
    """

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        device = directory.device_named(db, workspace, arguments.kit)
        try:
            place = shape.read_circle(arguments.to)
        except WrongShape as wrong:
            raise Refused(f"--to: {wrong}") from None
        name = arguments.name or f"{place.latitude:g} {place.longitude:g}"
        plan = RoutePlan(device, name, place, due_of(arguments.by, now), arguments.margin)
        route = routes.add(db, workspace, plan, now)
        due = plan.due if arguments.json else clock_time(plan.due)
        return show(arguments, {"id": route, "due": due, "margin": span(plan.margin)})

    return once(arguments, change)


def due_of(text: str, now: float) -> float:
    """Return the next such time of a UTC day, or an ISO 8601 time, in UTC without an offset. Raises
    Refused.
    """
    if match := _CLOCK.fullmatch(text):
        at = now - now % DAY + int(match[1]) * 3_600 + int(match[2]) * 60
        return at if at > now else at + DAY
    try:
        return read_timestamp(text).timestamp()
    except WrongValue:
        raise Refused(
            f"--by: {text!r} is not a time: use 18:00 (UTC), or 2026-11-26T18:00+01:00"
        ) from None


def list(arguments: argparse.Namespace) -> int:  # noqa: A001
    """List the routes that have not ended, and the newest ended ones, the newest first."""

    def look(db: Db, now: float) -> int:
        rows = routes.listing(db, directory.workspace_of(db, arguments.workspace))
        return show_list(arguments, rows if arguments.json else [_row(each) for each in rows])

    return once(arguments, look)


def _row(route: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": route["id"],
        "kit": route["device"]["name"],
        "to": route["name"],
        "place": in_words(route),
        "by": route["due"],
        "margin": span(route["margin"]),
        "state": route["state"],
        "alarm": route["incident"],
        "endedBy": route["endedBy"],
        "why": route["why"],
    }


def end(arguments: argparse.Namespace) -> int:
    """End a route in the name of a user, with a reason. An alarm about it stays until a person
    closes it.
    """

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        member = directory.member_of(db, workspace, arguments.by)
        ((name,),) = db.execute("SELECT name FROM member WHERE id = ?", member)
        routes.end(db, workspace, arguments.id, Who(member, name), arguments.why, now)
        return show(arguments, {"id": arguments.id, "ended": True})

    return once(arguments, change)
