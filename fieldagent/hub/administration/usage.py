"""API for the daily costs of a device's satellite messages, as counted by the hub and by the
operator.
"""

from __future__ import annotations

import re

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.administration.devices import find_device
from fieldagent.hub.records import usage
from fieldagent.hub.records.usage import Prices, UsageDay
from fieldagent.hub.store.contract import Db
from fieldagent.system.sentence import sentence

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
