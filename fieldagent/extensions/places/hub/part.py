"""Description of this extension's part of the hub."""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.extensions.places.hub import fences, routes
from fieldagent.extensions.places.hub.places_api import PlacesApi
from fieldagent.extensions.places.hub.report_api import ReportsApi
from fieldagent.extensions.places.hub.tracker_door import TrackerRoutes
from fieldagent.http.routes import Route
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.part import HubCheck, HubPart, KitPosition, PartHost
from fieldagent.hub.store.contract import Db, make_membership


def _make_routes(host: PartHost) -> list[Route]:
    acts = AdministrationContext(host.store, host.authentication, clock=host.clock)
    return [
        *PlacesApi(host).make_routes(),
        *ReportsApi(acts, host.prices).make_routes(),
        *TrackerRoutes(host).make_routes(),
    ]


def _check_positions(db: Db, positions: Sequence[KitPosition], now: float) -> None:
    """Check fences and routes against new positions."""
    if _is_anything_watched(db, positions):
        fences.check_positions(db, positions, now)
        routes.end_arrived_routes(db, positions, now)


def _is_anything_watched(db: Db, positions: Sequence[KitPosition]) -> bool:
    """Return True if a fence or a route may apply to these positions. This single query is
    sufficient for most positions, because neither applies to them.
    """
    workspaces, workspace_ids = make_membership(db, sorted({each.workspace for each in positions}))
    membership, devices = make_membership(db, sorted({each.device for each in positions}))
    return bool(
        db.execute(
            f"SELECT 1 FROM fence WHERE workspace {workspaces} UNION ALL"
            f" SELECT 1 FROM route WHERE ended IS NULL AND device {membership} LIMIT 1",
            *workspace_ids,
            *devices,
        )
    )


PART = HubPart(
    routes=_make_routes,
    take_positions=_check_positions,
    checks=(HubCheck(routes.compute_next_due, routes.check_overdue),),
    forget=routes.forget,
    exports={"fences": fences.list_fences, "routes": routes.list_routes},
    refusals=__package__,
    console=f"{__package__}.console",
)
