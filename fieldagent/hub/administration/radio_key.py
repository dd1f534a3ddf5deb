"""API that changes the radio key of all kits in a workspace."""

from __future__ import annotations

from typing import Any

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access.bodies import (
    make_choice_reader,
    make_integer_reader,
    make_not_found,
    read_body,
)
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.access.repeats import find_answer, read_repeatable, store_result
from fieldagent.hub.access.secret import make_air_key
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.administration.devices import find_device
from fieldagent.hub.api import reading
from fieldagent.hub.field import radio_key
from fieldagent.hub.field.radio_key import LAST, KeyPrice
from fieldagent.hub.store.contract import Db
from fieldagent.package.reading import INT32, Field, WrongValue
from fieldagent.system.wording import sentence

KITS_MAX = 1_000
CREDITS_MAX = 1_000_000
_number = make_integer_reader(1, INT32[-1])


def _read_devices(value: Any) -> frozenset[int]:
    if not isinstance(value, list) or len(value) > KITS_MAX:
        raise WrongValue(
            sentence("must be an array of at most {most} device numbers", most=KITS_MAX)
        )
    return frozenset(_number(each) for each in value)


ORDER = {
    "leftOut": Field(_read_devices, "left_out"),
    "by": Field(make_choice_reader(("ip",)), "bearer"),
    "credits": Field(make_integer_reader(0, CREDITS_MAX), "credits"),
}


class RadioKeyApi:
    def __init__(self, acts: AdministrationContext) -> None:
        self._acts = acts

    def make_routes(self) -> list[Route]:
        """Return the routes that change the radio key. Only administrators can use them."""
        route = self._acts.route
        return [
            route("GET", "/api/radio-key", self.answer_state),
            route("POST", "/api/radio-key", self.change),
            route("POST", "/api/devices/{id}/radio-key/leave-out", self.leave_out),
            route("POST", "/api/devices/{id}/radio-key/ask", self.ask),
        ]

    async def answer_state(self, request: Request, caller: Caller) -> Response:
        """Return the state of the change. No response contains the key itself."""
        refuse_others(request, ())
        now, workspace = self._acts.clock(), caller.workspace

        def find(db: Db) -> dict[str, Any]:
            try:
                price = radio_key.compute_price(db, workspace, "", steps=LAST, excluded=(), now=now)
            except Refused:
                price = KeyPrice(0, 0, 0, 0, frozenset())
            return {
                "change": radio_key.describe_change(db, workspace, now),
                "cost": {
                    "kits": price.kits,
                    "linked": price.linked,
                    "bySatellite": price.by_satellite,
                    "credits": price.credits,
                },
            }

        return make_json_response(await self._acts.store.read(find))

    async def change(self, request: Request, caller: Caller) -> Response:
        """Begin a change to a new key if the caller accepts the cost. A request with an
        Idempotency-Key is done only once.
        """
        refuse_others(request, ())
        body = read_body(request, ORDER)
        left_out, bearer = body.get("left_out", frozenset()), body.get("bearer", "")
        agreed = body.get("credits", 0)
        repeatable = read_repeatable(request, caller)

        def begin_change(db: Db, now: float) -> dict[str, Any] | None:
            workspace = caller.workspace
            if find_answer(db, repeatable) is not None:
                return radio_key.describe_change(db, workspace, now)
            for each in left_out:
                if not reading.is_device_known(db, caller, each):
                    raise make_not_found("device", str(each))
            price = radio_key.compute_price(
                db, workspace, bearer, steps=LAST, excluded=left_out, now=now
            )
            if price.by_satellite and price.credits > agreed:
                raise Refused(
                    sentence(
                        "the change costs up to {credits} credits over satellite: accept with"
                        ' "credits": {credits}, or wait for links and neighbours with "by":'
                        ' "ip"',
                        credits=price.credits,
                    )
                )
            actor = str(caller.member)
            key = make_air_key()
            radio_key.begin_change(
                db, workspace, key, bearer, left_out=left_out, actor=actor, now=now
            )
            store_result(db, repeatable, "", now)
            return radio_key.describe_change(db, workspace, now)

        return make_json_response({"change": await self._acts.carry_out(caller, begin_change)}, 202)

    async def leave_out(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Continue the change without waiting for a kit, and return the state of the change. Raises
        Problem 404, or 409 if no change is active.
        """
        refuse_others(request, ())

        def remove_kit(db: Db, now: float) -> dict[str, Any] | None:
            device = find_device(db, caller, id)
            radio_key.leave_out(db, device, actor=str(caller.member), now=now)
            return radio_key.describe_change(db, caller.workspace, now)

        return make_json_response({"change": await self._acts.carry_out(caller, remove_kit)})

    async def ask(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Ask a kit again to do the current step, over its own link or a neighbour's link."""
        refuse_others(request, ())

        def ask_kit(db: Db, now: float) -> dict[str, Any] | None:
            radio_key.ask_again(db, find_device(db, caller, id), "ip", now=now)
            return radio_key.describe_change(db, caller.workspace, now)

        return make_json_response({"change": await self._acts.carry_out(caller, ask_kit)})
