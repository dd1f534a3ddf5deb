"""API for the weekly report of a kit, which can be printed or downloaded."""

from __future__ import annotations

from fieldagent.extensions.places.hub import kit_week, print_page
from fieldagent.extensions.places.hub.documents import FORMATS
from fieldagent.extensions.places.hub.kit_week import KitWeek
from fieldagent.extensions.places.hub.week import WrongWeek, find_week, parse_week
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import read_one_of, refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.administration.devices import find_device
from fieldagent.hub.records.usage import Prices
from fieldagent.hub.store.contract import Db
from fieldagent.system.wording import sentence


class ReportsApi:
    def __init__(self, acts: AdministrationContext, prices: Prices) -> None:
        self._acts = acts
        self._prices = prices

    def make_routes(self) -> list[Route]:
        """Return the HTTP route of the weekly report."""
        return [self._acts.route("GET", "/api/devices/{id}/report", self.report)]

    async def report(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Return the report of the current or the requested week, as JSON or in the requested
        format. Raises Problem 400 if the week is invalid.
        """
        refuse_others(request, ("week", "format"))
        now = self._acts.clock()
        format_name = read_one_of(request, "format", ("json", *FORMATS)) or "json"
        week_name = dict(request.query).get("week")
        try:
            week = find_week(now) if week_name is None else parse_week(week_name)
        except WrongWeek as wrong:
            raise Problem(400, sentence("?week= is invalid: {wrong}", wrong=wrong)) from None

        def find_kit_week(db: Db) -> KitWeek:
            device = find_device(db, caller, id)
            return kit_week.read_kit_week(db, caller.workspace, device, week, self._prices, now)

        week_report = await self._acts.store.read(find_kit_week)
        if format_name == "json":
            return make_json_response(kit_week.encode_week(week_report))
        kind = FORMATS[format_name]
        file = f'filename="kit-{week_report.device}-{week.name}.{format_name}"'
        disposition = f"{'inline' if format_name == 'html' else 'attachment'}; {file}"
        headers = (
            ("Content-Disposition", disposition),
            ("Content-Security-Policy", print_page.CONTENT_SECURITY_POLICY),
        )
        return Response(200, kind.write(week_report), kind.content_type, headers)
