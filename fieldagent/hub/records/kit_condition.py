"""Last known condition of each kit.

A kit reports its condition over its link, or in its answer to the command `status` over any bearer.
Each device has one row, which a newer report replaces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fieldagent.hub.contract import Bearer
from fieldagent.hub.records import contact
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import CommandAnswer, CommandOutcome
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import kit_status
from fieldagent.wire.answer_text import STATUS
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_condition import CAUSES, REPORTED_HOURS, KitCondition
from fieldagent.wire.kit_status import KitStatus, format_version, read_version_numbers

HOUR_S = 3_600.0

COLUMNS = {
    f"condition {column}": f"kit_condition.{column}"
    for column in ("at", "way", "status", "about", "about_at")
}
"""SQL for the columns that `read_condition` reads."""


class LinkOnlyReport(NamedTuple):
    """Part of a kit's condition that the kit reports only over its link."""

    at: float
    system: str
    cause: str
    """Cause of the machine's last start, one of `CAUSES`."""
    starts: int
    """Number of starts of the agent in the last 24 hours."""
    throttled: int | None
    clock: int | None
    """Seconds by which the system clock was fast; None if unknown."""
    signals: Mapping[str, list[int | None]]
    """Signal of each channel in each of the last 24 hours; None for an hour without a value."""


class KnownCondition(NamedTuple):
    at: float
    way: str
    status: KitStatus
    about: LinkOnlyReport | None


def store_condition(db: Db, device: int, condition: KitCondition, now: float) -> None:
    """Store the condition that a kit reports. If the device was deleted meanwhile, do nothing."""
    reported_facts = {
        "system": condition.system,
        "cause": condition.cause,
        "starts": condition.starts,
        "throttled": condition.throttled,
        "clock": condition.clock,
        "signals": {name: list(hours) for name, hours in (condition.signals or {}).items()},
    }
    _store_status(db, device, condition.status, Bearer.IP.value, now)
    db.execute(
        "UPDATE kit_condition SET about = ?, about_at = ? WHERE device = ?",
        *(json.dumps(reported_facts), now, device),
    )


def store_status_answer(
    db: Db, device: int, verb: int, answer: CommandAnswer, came_by: str, now: float
) -> None:
    """Store a kit's answer to the command `status`. Ignore answers to other commands. `came_by` is
    the name of the answer's bearer, as shown to people.
    """
    if verb != STATUS or answer.outcome is not CommandOutcome.DONE:
        return
    try:
        status = kit_status.decode(answer.body)
    except RemoteProtocolError:
        return  # The kit uses a newer format; the command list shows the answer as unreadable.
    _store_status(db, device, status, came_by, now)
    rows = db.execute("SELECT version FROM contact WHERE device = ?", device)
    if rows and read_version_numbers(rows[0][0]) != (status.version, status.since):
        # The kit has not reported its version over its link, or has started another version since.
        contact.store_version(db, device, format_version(status))


def _store_status(db: Db, device: int, status: KitStatus, came_by: str, now: float) -> None:
    db.execute(
        "INSERT INTO kit_condition (device, at, way, status) SELECT id, ?, ?, ? FROM device"
        " WHERE id = ? ON CONFLICT (device) DO UPDATE SET at = excluded.at, way = excluded.way,"
        " status = excluded.status",
        *(now, came_by, kit_status.encode(status), device),
    )


def read_condition(row: Mapping[str, Any]) -> KnownCondition | None:
    """Return the condition in a row with the columns `COLUMNS`. Return None if the kit has reported
    no condition or the row is damaged.
    """
    at, reported_facts = row["condition at"], row["condition about"]
    if at is None:
        return None
    details = None
    with suppress(RemoteProtocolError, ValueError, TypeError, LookupError):
        if reported_facts:
            members = json.loads(reported_facts)
            details = LinkOnlyReport(
                float(row["condition about_at"]), **{**members, "cause": CAUSES[members["cause"]]}
            )
        status = kit_status.decode(bytes(row["condition status"]))
        return KnownCondition(float(at), row["condition way"], status, details)
    return None


def shift_to_now(hours: list[int | None], at: float, now: float) -> list[int | None]:
    """Return the values of the 24 hours before `now`. `hours` are the values of the 24 hours before
    `at`. Hours after `at` are None.
    """
    since = max(0, min(int((now - at) // HOUR_S), REPORTED_HOURS))
    return [*hours[since:], *[None] * since]
