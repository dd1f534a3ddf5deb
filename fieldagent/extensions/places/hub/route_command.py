"""`fieldagent hub route …`: places at which kits must arrive by a due time."""

from __future__ import annotations

import re
from typing import Any

from fieldagent.cli.hub.opened_store import Call, Result, make_transaction
from fieldagent.extensions.places.hub import routes, shape
from fieldagent.extensions.places.hub.fence_command import describe_area
from fieldagent.extensions.places.hub.routes import RoutePlan
from fieldagent.extensions.places.hub.shape import WrongShape
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records.sos import Actor
from fieldagent.package.reading import WrongValue, read_timestamp
from fieldagent.system.span import format_span
from fieldagent.system.terminal import format_local_time

DAY_S = 86_400.0
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)


@make_transaction
def add(call: Call) -> Result:
    """Add a route for a kit. Print its number, its due time and the time of the alarm. Raises
    Refused if `--to` is not a circle.
    """
    arguments = call.arguments
    device = directory.find_device_named(*call.here, arguments.kit)
    try:
        place = shape.parse_circle(arguments.to)
    except WrongShape as wrong:
        raise Refused(f"--to: {wrong}") from None
    name = arguments.name or f"{place.latitude:g} {place.longitude:g}"
    plan = RoutePlan(device, name, place, parse_due_time(arguments.by, call.now), arguments.margin)
    route = routes.add_route(*call.here, plan, call.now)
    due = plan.due if arguments.json else format_local_time(plan.due)
    return {"id": route, "due": due, "margin": format_span(plan.margin)}


def parse_due_time(text: str, now: float) -> float:
    """Return the Unix time of a text: the next occurrence of a time of day in UTC, or a time in ISO
    8601. An ISO 8601 time without an offset is UTC. Raises Refused for any other text.
    """
    if match := _CLOCK.fullmatch(text):
        at = now - now % DAY_S + int(match[1]) * 3_600 + int(match[2]) * 60
        return at if at > now else at + DAY_S
    try:
        return read_timestamp(text).timestamp()
    except WrongValue:
        raise Refused(
            f"--by: {text!r} is not a time: use 18:00 (UTC), or 2026-11-26T18:00+01:00"
        ) from None


@make_transaction
def show_routes(call: Call) -> Result:
    """List the routes that have not ended, and the newest ended routes, newest first."""
    rows = routes.list_routes(*call.here)
    return rows if call.arguments.json else [_make_row(each) for each in rows]


def _make_row(route: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": route["id"],
        "kit": route["device"]["name"],
        "to": route["name"],
        "place": describe_area(route),
        "by": route["due"],
        "margin": format_span(route["margin"]),
        "state": route["state"],
        "alarm": route["incident"],
        "endedBy": route["endedBy"],
        "why": route["why"],
    }


@make_transaction
def end(call: Call) -> Result:
    """End a route in the name of a user, with a reason. An alarm about the route remains until a
    person closes it.
    """
    arguments = call.arguments
    member = directory.find_member(*call.here, arguments.by)
    ((name,),) = call.db.execute("SELECT name FROM member WHERE id = ?", member)
    routes.end_route(*call.here, arguments.id, Actor(member, name), arguments.why, call.now)
    return {"id": arguments.id, "ended": True}
