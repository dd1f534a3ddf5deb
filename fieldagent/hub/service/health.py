"""Health of the hub: liveness, readiness, and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial

import trio

from fieldagent.http import openmetrics
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.openmetrics import Family, Sample
from fieldagent.http.routes import Route
from fieldagent.hub.field import dead_letters, radio_key
from fieldagent.hub.field.backlog import Queues, measure_backlog
from fieldagent.hub.records import lease, operator_trouble, rebuild, sos
from fieldagent.hub.service.figures import Figures
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.unavailable import REASON
from fieldagent.store.group import StoreFailed, StoreFull, StoreUnavailable
from fieldagent.system.supervisor import Supervisor

ANSWER_TIMEOUT_S = 1.5
"""Seconds within which the database must accept a test write, otherwise the hub is not ready. If
there was another write shortly before, no test write is made, because a load balancer asks every
few seconds."""
DISK_FULL = "the disk is full: the agent waits until you free space"
CALL_ROWS_MAX = 2_000
"""Largest length of the queues, in rows, that are counted during a call for metrics. Longer queues
are counted in the background."""
EXACT_ITEMS_MAX = 1_000
"""Largest number of stored items that are counted exactly. A larger number is estimated from the
ids."""
METRICS_TIMEOUT_S = 10.0
"""Seconds within which the metrics must be ready. Prometheus does not wait longer."""


class Health:
    """Routes for health probes and metrics. `counters` returns metrics of other parts, by the names
    below. `rows` reads further metrics from the database. `clock` returns Unix time.

    After `stopping` is set, the hub is not ready for new work.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float],
        supervisor: Supervisor,
        counters: Callable[[], Mapping[str, float]],
        figures: Figures,
        stopping: trio.Event,
        rows: Callable[[Db], Mapping[str, float]] = lambda db: {},
    ) -> None:
        self._store = store
        self._clock = clock
        self._supervisor = supervisor
        self._counters = counters
        self._figures = figures
        self._stopping = stopping
        self._rows = rows
        self._queues: Queues | None = None
        """Result of the last count in the background."""
        self._count_requested = trio.Event()

    async def run(self) -> None:
        """Count long queues in the background after a call for metrics. The call does not wait for
        the result.
        """
        while True:
            await self._count_requested.wait()
            self._count_requested = trio.Event()
            self._queues = await measure_backlog(self._store, self._clock())

    def make_routes(self, *, figures: bool = True) -> list[Route]:
        """Return the routes of both probes, and the route of the metrics if `figures` is True."""
        probes = [
            Route("GET", "/healthz", self.answer_readiness),
            Route("GET", "/livez", self.answer_liveness),
        ]
        return [*probes, Route("GET", "/metrics", self.answer_metrics)] if figures else probes

    async def answer_liveness(self, request: Request) -> Response:
        """Respond with status 200. The database is not checked, because a restart of the hub cannot
        fix the database.
        """
        return make_json_response({"status": "UP"})

    async def answer_readiness(self, request: Request) -> Response:
        """Respond with status 200 if the database accepts writes, otherwise with status 503 and the
        reason.
        """
        fault = await self._find_trouble()
        if fault is None:
            return make_json_response({"status": "UP"})
        return make_json_response({"status": "DOWN", "reason": fault}, 503)

    async def _find_trouble(self) -> str | None:
        if self._stopping.is_set():
            return "the hub is stopping"
        return await self._find_write_trouble() or self._supervisor.describe_trouble()

    async def _find_write_trouble(self) -> str | None:
        with trio.move_on_after(ANSWER_TIMEOUT_S):
            try:
                await self._store.prove()
            except StoreFull:
                return DISK_FULL
            except (StoreFailed, StoreUnavailable):
                return REASON
            return None
        return REASON

    async def answer_metrics(self, request: Request) -> Response:
        """Return the metrics. If the database does not respond, return only the metrics of the
        process.
        """
        figures: dict[str, float] = {}
        failing: Mapping[tuple[str, str, str], int] = {}
        balances: list[tuple[str, str, float]] = []
        fault = await self._find_write_trouble()
        started_at = trio.current_time()
        with trio.move_on_after(METRICS_TIMEOUT_S if fault != REASON else 0.0):
            with suppress(StoreFailed, StoreUnavailable):
                await self._store.read(lambda db: db.execute("SELECT 1"))
                seconds = trio.current_time() - started_at
                figures = await self._measure_database()
                figures |= await self._store.read(self._rows)
                failing = await self._store.read(operator_trouble.count_figures)
                balances = await self._store.read(operator_trouble.list_balances)
                figures["database_answer_seconds"] = seconds
        own_figures = {"database_up": int(bool(figures)), "disk_full": int(fault == DISK_FULL)}
        values = {**own_figures, **figures, **self._counters()}
        families = [*_list_families(values), *self._figures.list_families()]
        faults = [
            Sample(times, {"part": part}) for part, times in self._supervisor.count_faults().items()
        ]
        names = ("operator", "scope", "code")
        waits = [
            Sample(n, dict(zip(names, label_values, strict=True)))
            for label_values, n in failing.items()
        ]
        families.append(Family("satellite_messages_failing", "gauge", _FAILING_TEXT, waits))
        balance_samples = [Sample(n, {"operator": at, "plan": plan}) for at, plan, n in balances]
        families.append(Family("operator_balance", "gauge", _BALANCE, balance_samples))
        families.append(
            Family("faults", "counter", "Failures caused by a fault in the hub, by part.", faults)
        )
        text = openmetrics.format_metrics("fieldagent_hub", families)
        return Response(200, text.encode(), openmetrics.CONTENT_TYPE)

    async def _measure_database(self) -> dict[str, float]:
        now = self._clock()
        figures = await self._store.read(partial(count_few, now=now))
        if self._queues is None or self._queues.rows <= CALL_ROWS_MAX:
            self._queues = await measure_backlog(self._store, now)
        else:
            self._count_requested.set()
        return {**figures, **_measure_queues(self._queues, now)}


_FAILING_TEXT = "MT messages whose last call to the operator failed, by operator, scope and code."
_BALANCE = "Remaining monthly plan of an operator account, in the unit of the plan."
GAUGES = {
    "database_up": "1 if the database answers and accepts writes, else 0.",
    "disk_full": "1 if the database has no space for writes, else 0.",
    "database_answer_seconds": "Time of the last query to the database.",
    "items": "Stored items. Above 1000 an upper bound, because some may be deleted.",
    "deliveries_waiting": "Deliveries to kits without a confirmation from the kit.",
    "oldest_delivery_seconds": "Age of the oldest waiting delivery, 0 if none waits.",
    "satellite_messages_waiting": "MT messages that the operator has not accepted.",
    "oldest_satellite_message_seconds": "Age of the oldest waiting MT message.",
    "webhook_deliveries_waiting": "Deliveries to webhooks that have not succeeded yet.",
    "oldest_webhook_delivery_seconds": "Age of the oldest waiting webhook delivery.",
    "webhook_deliveries_dead": "Deliveries to webhooks that the hub has stopped trying.",
    "queues_counted_seconds": "Age of the counts of waiting deliveries.",
    "webhooks_disabled": "Disabled webhooks.",
    "imeis_contested": "IMEIs that two workspaces claim.",
    "sos_open": "SOS that no person has acknowledged.",
    "alarms_open": "Alarms of the hub that no person has acknowledged.",
    "sos_unreached": "Open SOS about which no dispatcher could be notified.",
    "alarms_unreached": "Open alarms about which no dispatcher could be notified.",
    "sos_seen": "SOS that are acknowledged and not closed.",
    "oldest_unseen_sos_seconds": "Age of the oldest unacknowledged SOS, 0 if there is none.",
    "contact_steps_broken": "Steps of the contact chain at which no contact could be notified.",
    "check_ins_late": "Kits that are overdue for a check-in.",
    "devices_linked": "Kits with an IP link to any hub of the database.",
    "links": "Kits with an IP link to this hub.",
    "bridges_linked": "Bridges of this hub that are connected to their servers.",
    "rebuild_kits_waiting": "Kits that must still return items that a restored database lost.",
    "rebuild_items_missing": "Items that were missing in a restored database and that kits had.",
    "rebuild_items_back": "Items that a restored database got back from kits.",
    "rebuild_items_gone": "Largest possible number of lost items that no kit has.",
    "radio_key_kits_pending": "Kits that have not taken the last step of a radio-key change.",
    "synthetic_item_seconds": "Age of the last test item of this hub that arrived.",
    "dead_letters_kept": "Stored dead letters: messages from kits that cannot be read.",
}
COUNTERS = {
    "dead_letters": "Dead letters since the database was created.",
    "dead_letters_dropped": "Dead letters that were deleted.",
    "pushes_accepted": "Accepted pushes since this hub started.",
    "pushes_refused": "Refused pushes since this hub started.",
    "confirmations_refused": "Confirmations with the digest of another item.",
    "satellite_sent_bytes": "Bytes of MT messages that operators have accepted.",
}


def _list_families(values: Mapping[str, float]) -> Iterator[Family]:
    """Yield the metrics whose value is known."""
    for kind, family_names in (("gauge", GAUGES), ("counter", COUNTERS)):
        for name, help_text in family_names.items():
            if name in values:
                unit = next((each for each in ("seconds", "bytes") if name.endswith(each)), "")
                yield Family(name, kind, help_text, [Sample(values[name])], unit)


_IS_SOS = f"kind = '{sos.SOS}'"
_IS_UNREACHED = "state = 'open' AND unreached IS NOT NULL"
_SMALL_TABLE_COUNTS = {
    # Estimate a large number of items from the ids, because an exact count of ten million items
    # takes a second.
    "items": f"SELECT CASE WHEN few <= {EXACT_ITEMS_MAX} THEN few"
    " ELSE (SELECT max(id) FROM item) - (SELECT min(id) FROM item) + 1 END FROM (SELECT count(*)"
    f" AS few FROM (SELECT 1 FROM item LIMIT {EXACT_ITEMS_MAX + 1}) AS these) AS counted",
    "satellite_messages_waiting": "SELECT count(*) FROM mobile_terminated",
    "satellite_messages_since": "SELECT min(created) FROM mobile_terminated",
    "sos_open_since": f"SELECT min(raised) FROM sos WHERE state = 'open' AND {_IS_SOS}",
    "sos_open": f"SELECT count(*) FROM sos WHERE state = 'open' AND {_IS_SOS}",
    "alarms_open": f"SELECT count(*) FROM sos WHERE state = 'open' AND NOT {_IS_SOS}",
    "sos_unreached": f"SELECT count(*) FROM sos WHERE {_IS_UNREACHED} AND {_IS_SOS}",
    "alarms_unreached": f"SELECT count(*) FROM sos WHERE {_IS_UNREACHED} AND NOT {_IS_SOS}",
    "sos_seen": f"SELECT count(*) FROM sos WHERE state = 'seen' AND {_IS_SOS}",
    "check_ins_late": "SELECT count(*) FROM check_in WHERE warned IS NOT NULL",
    "webhooks_disabled": "SELECT count(*) FROM webhook WHERE disabled IS NOT NULL",
    "imeis_contested": "SELECT count(*) FROM imei_claim",
    "satellite_sent_bytes": "SELECT coalesce(sum(bytes), 0) FROM spent",
}


def _measure_queues(queues: Queues, now: float) -> dict[str, float]:
    return {
        "deliveries_waiting": queues.deliveries.rows,
        "oldest_delivery_seconds": _compute_age(queues.deliveries.since, now),
        "webhook_deliveries_waiting": queues.webhooks.rows,
        "oldest_webhook_delivery_seconds": _compute_age(queues.webhooks.since, now),
        "webhook_deliveries_dead": queues.dead.rows,
        "queues_counted_seconds": _compute_age(queues.at, now),
    }


def count_few(db: Db, now: float) -> dict[str, float]:
    """Return the metrics that short queries compute, by name."""
    (row,) = db.execute(f"SELECT {', '.join(f'({sql})' for sql in _SMALL_TABLE_COUNTS.values())}")
    figures = dict(zip(_SMALL_TABLE_COUNTS, row, strict=True))
    unseen, oldest = figures.pop("sos_open_since"), figures.pop("satellite_messages_since")
    return {
        **{name: float(value) for name, value in figures.items()},
        "oldest_unseen_sos_seconds": _compute_age(unseen, now),
        "oldest_satellite_message_seconds": _compute_age(oldest, now),
        **dead_letters.count_figures(db),
        **rebuild.count_figures(db),
        **radio_key.count_figures(db),
        "devices_linked": lease.count_linked(db, now),
    }


def _compute_age(since: float | None, now: float) -> float:
    return 0.0 if since is None else max(0.0, now - float(since))
