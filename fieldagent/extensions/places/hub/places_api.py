"""API for fences and for routes with a due time. Readers can see both. Dispatchers and
administrators can change both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fieldagent.extensions.places.hub import fences, routes, shape
from fieldagent.extensions.places.hub.fences import REPORTED_CROSSINGS, FenceKits
from fieldagent.extensions.places.hub.routes import DEFAULT_MARGIN_S, RoutePlan
from fieldagent.extensions.places.hub.shape import (
    RADIUS_LEAST,
    RADIUS_MOST,
    Circle,
    Polygon,
    WrongShape,
)
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access.bodies import (
    make_choice_reader,
    make_conflict,
    make_integer_reader,
    make_line_reader,
    make_not_found,
    read_body,
    read_id,
)
from fieldagent.hub.access.caller import Caller, Purpose
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.access.repeats import find_answer, read_repeatable, store_result
from fieldagent.hub.api.reading import END, is_device_known
from fieldagent.hub.part import PartHost
from fieldagent.hub.records.sos import Actor
from fieldagent.hub.store.contract import Db
from fieldagent.package.reading import ITEMS, Field, WrongValue, read_timestamp
from fieldagent.package.strict_json import load_document
from fieldagent.system.wording import sentence

T = TypeVar("T")

BODY_MAX = 65_536
KITS_MAX = 500
_AT = ITEMS["location"].members


def _parse_circle(value: Any) -> Circle:
    if not isinstance(value, dict) or value.keys() != {"latitude", "longitude", "radius"}:
        raise WrongValue("must be an object with latitude, longitude and radius")
    latitude, longitude = (_AT[name].read(value[name]) for name in ("latitude", "longitude"))
    radius = value["radius"]
    if isinstance(radius, bool) or not isinstance(radius, int | float):
        raise WrongValue(
            sentence(
                "needs a radius of {least} to {most} m",
                least=f"{RADIUS_LEAST:.0f}",
                most=f"{RADIUS_MOST:.0f}",
            )
        )
    try:
        return shape.make_circle(latitude, longitude, radius)
    except WrongShape as error:
        raise WrongValue(sentence("is invalid: {error}", error=error)) from None


def _check_document(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WrongValue("must be a GeoJSON Polygon")
    return value


def _parse_polygon(document: dict[str, Any]) -> Polygon:
    """Return the polygon in a GeoJSON document. Raises Problem 409 if the document has no valid
    polygon.
    """
    try:
        return shape.parse_polygon(document)
    except WrongShape as error:
        raise make_conflict(sentence("cannot be used: {error}", error=error), "polygon") from None


_number = make_integer_reader(1, END)


def _parse_numbers(value: Any) -> list[str]:
    if not isinstance(value, list) or not 1 <= len(value) <= KITS_MAX:
        raise WrongValue(sentence("must be an array of 1 to {most} device numbers", most=KITS_MAX))
    return [str(_number(each)) for each in value]


NEW_FENCE = {
    "name": Field(make_line_reader(), "name", required=True),
    "circle": Field(_parse_circle, "circle"),
    "polygon": Field(_check_document, "polygon"),
    "alarmOn": Field(make_choice_reader(REPORTED_CROSSINGS), "alarm_on"),
    "devices": Field(_parse_numbers, "devices"),
    "group": Field(make_line_reader(), "group"),
}


NEW_ROUTE = {
    "device": Field(_number, "device", required=True),
    "circle": Field(_parse_circle, "circle", required=True),
    "due": Field(read_timestamp, "due", required=True),
    "margin": Field(make_integer_reader(0, 604_800), "margin"),
    "name": Field(make_line_reader(), "name"),
}
ENDING = {"why": Field(make_line_reader(500), "why", required=True)}


_load_drawing = partial(load_document, members_max=shape.POINTS_MAX + 1, parts_max=4_000)
"""JSON parser for the body of a fence, which can contain many points."""


class PlacesApi:
    """HTTP routes for fences and for routes of kits."""

    def __init__(self, host: PartHost) -> None:
        self._store = host.store
        self._clock = host.clock
        self._judge = host.authentication.judge

    def make_routes(self) -> list[Route]:
        """Return the HTTP routes for fences and for routes of kits. The scope READ is needed to see
        them, and ACKNOWLEDGE is needed to change them.
        """
        may_read, may_change = self._judge(Purpose.READ), self._judge(Purpose.ACKNOWLEDGE)
        return [
            Route("GET", "/api/fences", self.answer_fences, judge=may_read),
            Route("POST", "/api/fences", self.add_fence, judge=may_change, body=BODY_MAX),
            Route("DELETE", "/api/fences/{id}", self.remove_fence, judge=may_change),
            Route("GET", "/api/routes", self.answer_routes, judge=may_read),
            Route("POST", "/api/routes", self.add_route, judge=may_change, body=BODY_MAX),
            Route("POST", "/api/routes/{id}/end", self.end_route, judge=may_change, body=BODY_MAX),
        ]

    async def answer_fences(self, request: Request, caller: Caller) -> Response:
        """Return all fences. There are no pages, because a workspace has few fences."""
        refuse_others(request, ())
        rows = await self._store.read(lambda db: fences.list_fences(db, caller.workspace))
        return make_json_response({"fences": rows})

    async def add_fence(self, request: Request, caller: Caller) -> Response:
        """Add a fence from a circle or a polygon, and respond with status 201 and the fence. Raises
        Problem 422 if the body contains both shapes or neither.
        """
        refuse_others(request, ())
        body = read_body(request, NEW_FENCE, _load_drawing)
        if ("circle" in body) == ("polygon" in body):
            raise Problem(
                422, "nothing was changed: a fence must have either a circle or a polygon"
            )
        outline = body["circle"] if "circle" in body else _parse_polygon(body["polygon"])
        kits = FenceKits(body.get("devices", ()), body.get("group", ""))

        def store_fence(db: Db, now: float) -> dict[str, Any]:
            name, alarm_on, person = (
                body["name"],
                body.get("alarm_on", REPORTED_CROSSINGS[0]),
                str(caller.member),
            )
            fence = fences.add_fence(
                db, caller.workspace, name, outline, alarm_on, kits, now, actor=person
            )
            return _find_entry(fences.list_fences(db, caller.workspace), fence)

        return make_json_response(await self._commit(store_fence), 201)

    async def remove_fence(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Remove a fence, and respond with status 204. Raises Problem 404 if the workspace does not
        have the fence.
        """
        refuse_others(request, ())
        fence = read_id(id)

        def delete_fence(db: Db, now: float) -> bool:
            if not any(each["id"] == fence for each in fences.list_fences(db, caller.workspace)):
                return False
            fences.remove_fence(db, caller.workspace, fence, now, actor=str(caller.member))
            return True

        if not await self._commit(delete_fence):
            raise make_not_found("fence", id)
        return Response(204)

    async def answer_routes(self, request: Request, caller: Caller) -> Response:
        """Return the workspace's routes for kits."""
        refuse_others(request, ())
        rows = await self._store.read(lambda db: routes.list_routes(db, caller.workspace))
        return make_json_response({"routes": rows})

    async def add_route(self, request: Request, caller: Caller) -> Response:
        """Add a route for a kit, and respond with status 201 and the route. A request with an
        Idempotency-Key is done only once. If no name is given, the name is the coordinates of the
        place. Raises Problem 409 if the device is in another workspace.
        """
        refuse_others(request, ())
        body, repeatable = read_body(request, NEW_ROUTE), read_repeatable(request, caller)
        place: Circle = body["circle"]
        name = body.get("name", f"{place.latitude:g} {place.longitude:g}")

        def store_route(db: Db, now: float) -> dict[str, Any]:
            if earlier_answer := find_answer(db, repeatable):
                known_routes = routes.list_routes(db, caller.workspace)
                if not any(each["id"] == int(earlier_answer) for each in known_routes):
                    raise make_not_found("route", earlier_answer)
                return _find_entry(known_routes, int(earlier_answer))
            device = body["device"]
            if not is_device_known(db, caller, device):
                raise make_conflict(
                    sentence("{device} is not in this workspace", device=device), "device"
                )
            margin = body.get("margin", DEFAULT_MARGIN_S)
            plan = RoutePlan(device, name, place, body["due"].timestamp(), margin)
            route = routes.add_route(db, caller.workspace, plan, now, actor=str(caller.member))
            store_result(db, repeatable, str(route), now)
            return _find_entry(routes.list_routes(db, caller.workspace), route)

        return make_json_response(await self._commit(store_route), 201)

    async def end_route(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """End a route in the name of the caller, with a reason."""
        refuse_others(request, ())
        body = read_body(request, ENDING)
        route, actor = read_id(id), Actor(caller.member, caller.name)

        def finish_route(db: Db, now: float) -> dict[str, Any] | None:
            if not any(each["id"] == route for each in routes.list_routes(db, caller.workspace)):
                return None
            routes.end_route(db, caller.workspace, route, actor, body["why"], now)
            return _find_entry(routes.list_routes(db, caller.workspace), route)

        if (answer := await self._commit(finish_route)) is None:
            raise make_not_found("route", id)
        return make_json_response(answer)

    async def _commit(self, operation: Callable[[Db, float], T]) -> T:
        """Commit a change. If the change is refused, nothing is changed, and Problem 409 is
        raised.
        """
        try:
            return await self._store.commit(lambda db: operation(db, self._clock()))
        except Refused as refused:
            raise Problem(409, str(refused)) from None


def _find_entry(entries: list[dict[str, Any]], id_: int) -> dict[str, Any]:
    return next(each for each in entries if each["id"] == id_)
