"""The description of this extension for the hub."""

from __future__ import annotations

from fieldagent.extensions.places.hub.report_api import ReportsApi
from fieldagent.extensions.places.hub.tracker_door import TrackerDoor
from fieldagent.http.routes import Route
from fieldagent.hub.administration.acts import Acts
from fieldagent.hub.part import HubPart, PartHost


def _routes(host: PartHost) -> list[Route]:
    acts = Acts(host.store, host.authentication, clock=host.clock)
    return [*ReportsApi(acts, host.prices).routes(), *TrackerDoor(host).routes()]


PART = HubPart(routes=_routes, refusals=__package__)
