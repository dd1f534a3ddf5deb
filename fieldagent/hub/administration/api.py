"""The administration API: what an administrator of a workspace sees and does there, and nowhere
else."""

from __future__ import annotations

from fieldagent.http.routes import Route
from fieldagent.hub.administration.acts import Acts
from fieldagent.hub.administration.records import RecordsApi


def routes(acts: Acts) -> list[Route]:
    return RecordsApi(acts).routes()
