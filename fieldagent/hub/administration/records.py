"""API for the audit log of a workspace, for dead letters of its devices, and for the daily costs of
a device's satellite messages, as counted by the hub and by the operator.
"""

from __future__ import annotations

import re

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import make_page, read_integer, refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access.bodies import make_not_found, read_id
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.administration.acts import AdministrationContext, read_place
from fieldagent.hub.administration.devices import find_device
from fieldagent.hub.field import dead_letters, kept_letters
from fieldagent.hub.field.mobile_originated import MobileOriginatedReceiver
from fieldagent.hub.records import audit, usage
from fieldagent.hub.records.usage import Prices, UsageDay
from fieldagent.hub.store.contract import Db
from fieldagent.system.wording import sentence

LETTERS_LISTED, LETTERS_LISTED_MAX = 50, 100


class RecordsApi:
    def __init__(
        self, acts: AdministrationContext, mobile_originated: MobileOriginatedReceiver
    ) -> None:
        self._acts = acts
        self._mobile_originated = mobile_originated

    def make_routes(self) -> list[Route]:
        """Return the routes for the audit log and dead letters. Only administrators can use
        them.
        """
        route = self._acts.route
        return [
            route("GET", "/api/audit", self.audit),
            route("GET", "/api/dead-letters", self.answer_letters),
            route("DELETE", "/api/dead-letters/{id}", self.discard),
            route("POST", "/api/dead-letters/replay", self.replay),
        ]

    async def audit(self, request: Request, caller: Caller) -> Response:
        """Return a page of the workspace's audit log, newest first."""
        refuse_others(request, ("before", "limit"))
        before, limit = read_place(request)
        lines, next_line = await self._acts.store.read(
            lambda db: audit.list_page(db, caller.workspace, before, limit)
        )
        return make_page(request, {"audit": lines}, "before", next_line)

    async def answer_letters(self, request: Request, caller: Caller) -> Response:
        """Return a page of dead letters. Letters from an IMEI without a device are not included.
        Only the operator on the hub's machine sees them.
        """
        refuse_others(request, ("before", "limit"))
        before, _ = read_place(request)
        limit = read_integer(request, "limit", LETTERS_LISTED, range(1, LETTERS_LISTED_MAX + 1))
        rows = await self._acts.store.read(
            lambda db: dead_letters.list_workspace_letters(db, caller.workspace, before, limit + 1)
        )
        next_id = rows[limit - 1]["id"] if len(rows) > limit else None
        return make_page(request, {"deadLetters": rows[:limit]}, "before", next_id)

    async def discard(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Delete a dead letter permanently, and respond with status 204. Raises Problem 404 if the
        letter is of another workspace.
        """
        refuse_others(request, ())

        def discard_letter(db: Db, now: float) -> None:
            letter = read_id(id)
            if not dead_letters.is_of_workspace(db, caller.workspace, letter):
                raise make_not_found("dead letter", id)
            actor, workspace = str(caller.member), caller.workspace
            dead_letters.discard_letter(db, letter, workspace=workspace, now=now, actor=actor)

        await self._acts.carry_out(caller, discard_letter)
        return Response(204)

    async def replay(self, request: Request, caller: Caller) -> Response:
        """Process the dead letters of the workspace's devices again. Those that the hub can use now
        are accepted.
        """
        refuse_others(request, ())

        def replay_letter(db: Db, now: float) -> int:
            devices = dead_letters.list_devices_with_letters(db, caller.workspace)
            accepted_count = kept_letters.accept_letters(db, self._mobile_originated, devices)
            audit.write_line(
                db,
                caller.workspace,
                str(caller.member),
                "dead-letter replay",
                str(accepted_count),
                now,
            )
            return accepted_count

        return make_json_response(
            {"deadLettersTaken": await self._acts.carry_out(caller, replay_letter)}
        )


_DAY = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", re.ASCII)


class UsageApi:
    def __init__(self, acts: AdministrationContext, prices: Prices) -> None:
        self._acts = acts
        self._prices = prices

    def make_routes(self) -> list[Route]:
        """Return the route `GET /api/devices/{id}/usage`."""
        return [self._acts.route("GET", "/api/devices/{id}/usage", self.answer_usage)]

    async def answer_usage(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Return the usage of a device for each day from `since` to `until`, and the total. Raises
        Problem 400 if a date is invalid, 404 if the device is in another workspace."""
        refuse_others(request, ("since", "until"))
        dates = (_read_day(request, "since"), _read_day(request, "until"))
        since, until = usage.choose_days(*dates, self._acts.clock())

        def find(db: Db) -> list[UsageDay]:
            device = find_device(db, caller, id)
            return usage.list_days(db, caller.workspace, since, until, device)

        days = await self._acts.store.read(find)
        total = usage.compute_total(days, self._prices)
        return make_json_response(
            {
                "since": since,
                "until": until,
                "usage": [usage.make_row(each, self._prices) for each in days],
                "total": {
                    "hubCount": total.ours,
                    "money": total.money or None,
                    "importedHubCount": total.compared,
                    "importedMoney": total.compared_money or None,
                    "operator": total.theirs,
                    "operatorMoney": total.their_money or None,
                },
            }
        )


def _read_day(request: Request, name: str) -> str | None:
    value = dict(request.query).get(name)
    if value is not None and not _DAY.fullmatch(value):
        raise Problem(400, detail=sentence("?{name}= is a day such as 2026-09-01", name=name))
    return value
