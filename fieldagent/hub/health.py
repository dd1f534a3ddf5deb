"""How the hub is: whether it lives, whether work may be sent to it, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import trio

from fieldagent.http.message import Request, Response, json_response
from fieldagent.http.routes import Route
from fieldagent.hub import dead_letters, lease
from fieldagent.hub.not_now import REASON
from fieldagent.hub.store.contract import Db, Store
from fieldagent.store.group import StoreFailed, StoreUnavailable
from fieldagent.system.supervisor import Supervisor

ANSWERS = 1.5
"""Seconds in which the database answers a hub that is ready. A balancer asks every few seconds."""
FIGURES = 10.0
"""Seconds for the figures: they count rows. Prometheus waits no longer."""


class Health:
    """`counters` are figures of other parts, by name; `clock` is Unix time. Once `stopping` is set,
    no new work is to be sent here."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float],
        supervisor: Supervisor,
        counters: Callable[[], Mapping[str, int]],
        stopping: trio.Event,
    ) -> None:
        self._store = store
        self._clock = clock
        self._supervisor = supervisor
        self._counters = counters
        self._stopping = stopping

    def routes(self, *, figures: bool = True) -> list[Route]:
        probes = [
            Route("GET", "/healthz", self.readiness),
            Route("GET", "/livez", self.liveness),
        ]
        return [*probes, Route("GET", "/metrics", self.metrics)] if figures else probes

    async def liveness(self, request: Request) -> Response:
        """That this answers is all: a restart mends no database."""
        return json_response({"status": "UP"})

    async def readiness(self, request: Request) -> Response:
        trouble = await self._trouble()
        if trouble is None:
            return json_response({"status": "UP"})
        return json_response({"status": "DOWN", "reason": trouble}, 503)

    async def _trouble(self) -> str | None:
        if self._stopping.is_set():
            return "the hub is stopping"
        if not await self._answers():
            return REASON
        return self._supervisor.trouble()

    async def _answers(self) -> bool:
        with trio.move_on_after(ANSWERS):
            try:
                await self._store.read(lambda db: db.execute("SELECT 1"))
            except (StoreFailed, StoreUnavailable):
                return False
            return True
        return False

    async def metrics(self, request: Request) -> Response:
        """What the process knows by itself is told whether the database answers or not."""
        figures: Mapping[str, int] = {}
        with trio.move_on_after(FIGURES):
            with suppress(StoreFailed, StoreUnavailable):
                figures = await self._store.read(lambda db: _figures(db, self._clock()))
        values = {"database_up": int(bool(figures)), **figures, **self._counters()}
        text = "".join(f"fieldagent_hub_{name} {value}\n" for name, value in values.items())
        for part, times in self._supervisor.counts().items():
            text += f'fieldagent_hub_faults_total{{part="{part}"}} {times}\n'
        return Response(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")


def _figures(db: Db, now: float) -> dict[str, int]:
    counts = {
        "items": "SELECT count(*) FROM item",
        "deliveries_waiting": "SELECT count(*) FROM delivery"
        " WHERE state IN ('waiting', 'packed', 'sent')",
        "satellite_messages_waiting": "SELECT count(*) FROM mobile_terminated",
        "webhook_deliveries_waiting": "SELECT count(*) FROM webhook_delivery"
        " WHERE state = 'waiting'",
        "sos_open": "SELECT count(*) FROM sos WHERE state = 'open'",
        "sos_acknowledged": "SELECT count(*) FROM sos WHERE state = 'acknowledged'",
        "check_ins_late": "SELECT count(*) FROM check_in WHERE warned IS NOT NULL",
        "webhook_deliveries_dead": "SELECT count(*) FROM webhook_delivery WHERE state = 'dead'",
    }
    found = {name: int(db.execute(sql)[0][0]) for name, sql in counts.items()}
    return {**found, **dead_letters.figures(db), "devices_linked": lease.linked(db, now)}
