"""Route to which trackers report: `/source/KIND/SECRET`, one address per workspace that wants
one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from fieldagent.http.message import FORM, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.hub.access.attempts import too_many
from fieldagent.hub.bridge.contract import Became
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.tracker import intake, records
from fieldagent.hub.tracker.contract import TrackerKind, TrackerReport
from fieldagent.hub.tracker.records import ReportAddress
from fieldagent.hub.tracker.registry import tracker_kinds

log = logging.getLogger(__name__)

PATH = "/source/"
BODY = 65_536
"""Largest number of bytes of a report."""
TOLD_MAX = 1_000
"""Largest number of warnings, which are logged once each: unknown trackers and kinds of rejected
reports."""


class TrackerDoor:
    """Receiver of reports. `clock` returns Unix time. `wrong` counts a wrong address for its
    caller, and returns the refusal.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float],
        wrong: Callable[[Request], Awaitable[Problem]],
        note: Callable[[str, Became], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._wrong = wrong
        self._note = note
        self._told: set[tuple[int, str, str]] = set()

    def routes(self) -> list[Route]:
        """Return a route for each kind of tracker and method. The secret in the path authenticates
        a call.
        """
        return [
            Route(
                method,
                f"{PATH}{kind.name}/{{secret}}",
                partial(self.take, kind),
                body=BODY,
                takes=(FORM,),
            )
            for kind in tracker_kinds().values()
            for method in kind.methods
        ]

    async def take(self, kind: TrackerKind, request: Request, secret: str) -> Response:
        """Store a report and answer 200. Raises Problem 404 for a wrong address or an unknown
        tracker, 400 for an unreadable report, 429 with Retry-After.
        """
        source = await self._store.read(lambda db: records.source_of(db, secret))
        if source is None:
            raise await self._wrong(request)
        try:
            report = kind.read(request)
        except Problem as fault:
            self._note(kind.name, Became.UNREADABLE)
            what = "%s sends a report that is refused: %s"
            self._warn_once((source.workspace, kind.name, ""), what, kind.title, fault.detail)
            raise
        if report is not None:
            await self._take(kind, source, report)
        return Response(200, kind.answer)

    async def _take(self, kind: TrackerKind, source: ReportAddress, report: TrackerReport) -> None:
        """Store a report. Raises Problem 404, 429."""

        def carry_out(db: Db) -> Became | float:
            now = self._clock()
            return records.charge_call(db, source, now) or intake.take_in(
                db, source.workspace, report, now
            )

        became = await self._store.commit(carry_out)
        if not isinstance(became, Became):
            self._note(kind.name, Became.LIMITED)
            raise too_many("this address has been used too often", became)
        self._note(kind.name, became)
        if became is Became.REFUSED:
            self._warn_of_unknown(kind, source, report)
            why = f"the tracker {report.ident!r} is not added: use `fieldagent hub tracker add`"
            raise Problem(404, why)

    def _warn_of_unknown(
        self, kind: TrackerKind, source: ReportAddress, report: TrackerReport
    ) -> None:
        ident, remedy = report.ident, "`fieldagent hub tracker add NAME --id %r --user USER` does"
        if report.alarm:
            what = (
                "%s delivered an alarm of the tracker %r, which is not added and raises no"
                f" alarm: {remedy}"
            )
            self._warn_once((source.workspace, ident, "alarm"), what, kind.title, ident, ident)
        else:
            what = f"%s delivered a report of the tracker %r, which is not added: {remedy}"
            self._warn_once((source.workspace, ident, ""), what, kind.title, ident, ident)

    def _warn_once(self, key: tuple[int, str, str], what: str, *values: object) -> None:
        if key in self._told or len(self._told) >= TOLD_MAX:
            return
        self._told.add(key)
        log.warning(what, *values)
