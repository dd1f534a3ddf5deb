"""Writes each step of an incident to the hub's log, at level WARNING."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, NoReturn

from fieldagent.hub import idle
from fieldagent.hub.api import sos_desk
from fieldagent.hub.api.event_stream import UNSETTLED_S, Follower
from fieldagent.hub.records import sos
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.persist import skip_if_unavailable
from fieldagent.system.lazy_named_tuple import NamedTuple

log = logging.getLogger(__name__)

STEPS_MAX = 1_000
"""Largest number of steps that are skipped at the start of the hub. These are the steps of the
last `UNSETTLED_S` seconds."""
UNLOGGED_STEPS = ("item", "answer on the kit")
"""Steps that are not logged because they are frequent. For example, a kit may send a position every
minute."""


async def run(store: Store, *, clock: Callable[[], float]) -> NoReturn:
    """Log all steps from now on, until cancelled. `clock` returns Unix time."""
    follower, wait_s = None, 0.0
    while True:
        event_written = store.get_event(sos.EVENTS)
        lines: list[str] = []
        with skip_if_unavailable():
            if follower is None:
                follower = await _make_follower(store, clock())
            steps = await store.read(
                partial(_list_next_steps, place=follower.place, capacity=follower.capacity)
            )
            fresh_steps = follower.select_fresh([(each.number, each.at) for each in steps], clock())
            lines = [each.line for each in steps if each.number in fresh_steps]
        for line in filter(None, lines):
            log.warning("%s", line)
        if not lines:
            await idle.wait_until_due(event_written, wait_s)
            wait_s = inf


class _Step(NamedTuple):
    number: int
    at: float
    line: str
    """Log line; empty if nothing must be logged."""


async def _make_follower(store: Store, now: float) -> Follower:
    """Return a reader of the steps after all current steps. Another hub process may still commit a
    step with a lower id, because ids are assigned before the commit.
    """
    unsettled = UNSETTLED_S if store.shared else 0.0
    sql = "SELECT coalesce(max(id), 0) FROM sos_event WHERE at <= ?"
    ((event_number,),) = await store.read(lambda db: db.execute(sql, now - unsettled))
    follower, capacity = Follower(int(event_number), unsettled), STEPS_MAX
    steps = await store.read(partial(_list_next_steps, place=follower.place, capacity=capacity))
    follower.select_fresh([(each.number, each.at) for each in steps], now)
    return follower


def _list_next_steps(db: Db, place: int, capacity: int) -> list[_Step]:
    rows = db.execute(
        "SELECT sos_event.id, at, device.name FROM sos_event JOIN sos ON sos.id = sos_event.sos"
        " JOIN device ON device.id = sos.device WHERE sos_event.id > ? ORDER BY sos_event.id"
        " LIMIT ?",
        place,
        capacity,
    )
    return [
        _Step(number, float(at), _format_line(db, number, device)) for number, at, device in rows
    ]


_KINDS = {"sos": "SOS", "watch": "no one on watch"}


def _format_line(db: Db, number: int, device: str) -> str:
    incident, event = sos.find_by_event(db, number), sos_desk.encode_desk_event(db, number)
    if incident is None or event["event"] in UNLOGGED_STEPS:
        return ""
    kind_text = _KINDS.get(incident.kind, incident.kind)
    line = f"{kind_text} {incident.short} of {device}: {event['event']}{_format_author(event)}"
    if event["event"] == "raised" and not sos_desk.list_dispatchers(db, incident.workspace):
        verb = sos.ALARM if incident.is_alarm else sos.SOS
        line += (
            "; no user here can acknowledge it: make a user a dispatcher with `fieldagent hub"
            f" user role`, or use `fieldagent hub {verb} acknowledge {incident.id} --by USER`"
        )
    return line


def _format_author(event: dict[str, Any]) -> str:
    author = event["by"]["name"] if event["by"] else ""
    if author:
        author = f" {author}" if event["event"].endswith(" by") else f" by {author}"
    return f"{author}: {event['detail']}" if event["detail"] else author
