"""HTTP route to which trackers report: `/source/KIND/SECRET`. A workspace can have several such
addresses.
"""

from __future__ import annotations

import logging
from functools import partial

from fieldagent.extensions.places.hub import osmand, owntracks, traccar
from fieldagent.extensions.places.hub.tracker_kind import TrackerKind
from fieldagent.http.message import FORM, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.hub.access import secret as secrets
from fieldagent.hub.access.attempts import make_too_many_problem
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.field import trackers
from fieldagent.hub.field.trackers import TrackerReport
from fieldagent.hub.part import PartHost
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import Rate

log = logging.getLogger(__name__)

KINDS = {kind.name: kind for kind in (osmand.KIND, traccar.KIND, owntracks.KIND)}
"""Kinds of trackers by their names."""
PATH = "/source/"
BODY = 65_536
"""Largest number of bytes of a report."""
WARNINGS_MAX = 1_000
"""Largest number of different warnings about unknown trackers and rejected reports. Each warning is
logged once."""
CALLS = Rate(per_minute=600, burst=600)
"""Largest rate of reports per address. It is sufficient for a hundred trackers that report every
ten seconds."""


class ReportAddress(NamedTuple):
    """Address to which the trackers of a workspace report. The secret in it is a credential."""

    id: int
    workspace: int


class TrackerRoutes:
    """HTTP routes that receive the reports of trackers, such as phones with OwnTracks."""

    def __init__(self, host: PartHost) -> None:
        self._store = host.store
        self._clock = host.clock
        self._authentication = host.authentication
        self._note = host.note_event
        self._warned: set[tuple[int, str, str]] = set()

    def make_routes(self) -> list[Route]:
        """Return an HTTP route for each kind of tracker and each method. The secret in the path
        authenticates a call.
        """
        return [
            Route(
                method,
                f"{PATH}{kind.name}/{{secret}}",
                partial(self.receive_message, kind),
                body=BODY,
                media_types=(FORM,),
            )
            for kind in KINDS.values()
            for method in kind.methods
        ]

    async def receive_message(self, kind: TrackerKind, request: Request, secret: str) -> Response:
        """Store a report and respond with status 200. Raises Problem 404 if the address is wrong or
        the tracker is unknown, 400 if the report cannot be parsed, or 429 with Retry-After.
        """
        source = await self._store.read(lambda db: find_source(db, secret))
        if source is None:
            reason = "trackers cannot report here: see `fieldagent hub tracker source list`"
            raise await self._authentication.count_failure(request, "sources", Problem(404, reason))
        try:
            report = kind.read(request)
        except Problem as fault:
            self._note(kind.name, ItemResult.UNREADABLE)
            warning = "%s sends a report that is refused: %s"
            self._warn_once((source.workspace, kind.name, ""), warning, kind.title, fault.detail)
            raise
        if report is not None:
            await self._store_report(kind, source, report)
        return Response(200, kind.answer)

    async def _store_report(
        self, kind: TrackerKind, source: ReportAddress, report: TrackerReport
    ) -> None:
        """Store a report. Raises Problem 404 if the tracker is unknown, and 429 if the address is
        used too often.
        """

        def carry_out(db: Db) -> ItemResult | float:
            now = self._clock()
            return charge_call(db, source, now) or trackers.process_tracker_report(
                db, source.workspace, report, now
            )

        result = await self._store.commit(carry_out)
        if not isinstance(result, ItemResult):
            self._note(kind.name, ItemResult.LIMITED)
            raise make_too_many_problem("this address has been used too often", result)
        self._note(kind.name, result)
        if result is ItemResult.REFUSED:
            self._warn_of_unknown(kind, source, report)
            reason = f"the tracker {report.ident!r} is not added: use `fieldagent hub tracker add`"
            raise Problem(404, reason)

    def _warn_of_unknown(
        self, kind: TrackerKind, source: ReportAddress, report: TrackerReport
    ) -> None:
        ident, remedy = report.ident, "`fieldagent hub tracker add NAME --id %r --user USER` does"
        if report.alarm:
            warning = (
                "%s delivered an alarm of the tracker %r, which is not added and raises no"
                f" alarm: {remedy}"
            )
            self._warn_once((source.workspace, ident, "alarm"), warning, kind.title, ident, ident)
        else:
            warning = f"%s delivered a report of the tracker %r, which is not added: {remedy}"
            self._warn_once((source.workspace, ident, ""), warning, kind.title, ident, ident)

    def _warn_once(self, key: tuple[int, str, str], what: str, *values: object) -> None:
        if key in self._warned or len(self._warned) >= WARNINGS_MAX:
            return
        self._warned.add(key)
        log.warning(what, *values)


def find_source(db: Db, secret: str) -> ReportAddress | None:
    """Return the address that contains this secret, or None if there is no such address or it is
    not valid any more.
    """
    rows = db.execute(
        "SELECT id, workspace FROM credential WHERE kind = 'source' AND lookup = ?"
        " AND revoked IS NULL",
        secrets.hash_for_lookup(secret),
    )
    return ReportAddress(*rows[0]) if rows else None


def charge_call(db: Db, source: ReportAddress, now: float) -> float:
    """Count a call. Return 0, or the seconds until the next call is allowed."""
    sql = f"SELECT tat FROM credential WHERE id = ?{db.for_update()}"
    ((tat,),) = db.execute(sql, source.id)
    tat, wait = CALLS.admit(tat, now)
    if not wait:
        db.execute("UPDATE credential SET tat = ? WHERE id = ?", tat, source.id)
    return wait
