"""How each kit is, as it told last: by itself over its link, or as it answered `status` by any
bearer. One row of a device; the next takes its place."""

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
from fieldagent.wire.command_answer import STATUS
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_condition import CAUSES, HOURS, KitCondition
from fieldagent.wire.kit_status import KitStatus, numbers_of, version_of

HOUR = 3_600.0

COLUMNS = {
    f"condition {column}": f"kit_condition.{column}"
    for column in ("at", "way", "status", "about", "about_at")
}
"""What `known` reads."""


class About(NamedTuple):
    """What a kit tells over its link alone."""

    at: float
    system: str
    cause: str
    """Of the machine's last start, one of CAUSES."""
    starts: int
    """Of the agent, in the 24 hours before."""
    throttled: int | None
    clock: int | None
    """Seconds by which the system's clock was ahead."""
    signals: Mapping[str, list[int | None]]
    """By channel, of the 24 hours before."""


class KnownCondition(NamedTuple):
    at: float
    way: str
    status: KitStatus
    about: About | None


def note(db: Db, device: int, condition: KitCondition, now: float) -> None:
    """Write down what a kit tells by itself; nothing of a device that was deleted meanwhile."""
    about = {
        "system": condition.system,
        "cause": condition.cause,
        "starts": condition.starts,
        "throttled": condition.throttled,
        "clock": condition.clock,
        "signals": {name: list(hours) for name, hours in (condition.signals or {}).items()},
    }
    _put_status(db, device, condition.status, Bearer.IP.value, now)
    db.execute(
        "UPDATE kit_condition SET about = ?, about_at = ? WHERE device = ?",
        *(json.dumps(about), now, device),
    )


def note_answer(
    db: Db, device: int, verb: int, answer: CommandAnswer, came_by: str, now: float
) -> None:
    """Write down what a kit has answered, where that was to `status`; `came_by` is how the answer
    came, in words."""
    if verb != STATUS or answer.outcome is not CommandOutcome.DONE:
        return
    try:
        status = kit_status.decode(answer.body)
    except RemoteProtocolError:
        return  # a later form: people read it as one that cannot be read
    _put_status(db, device, status, came_by, now)
    rows = db.execute("SELECT version FROM contact WHERE device = ?", device)
    if rows and numbers_of(rows[0][0]) != (status.version, status.since):
        # Its link has told none, or another program runs since.
        contact.note_version(db, device, version_of(status))


def _put_status(db: Db, device: int, status: KitStatus, came_by: str, now: float) -> None:
    db.execute(
        "INSERT INTO kit_condition (device, at, way, status) SELECT id, ?, ?, ? FROM device"
        " WHERE id = ? ON CONFLICT (device) DO UPDATE SET at = excluded.at, way = excluded.way,"
        " status = excluded.status",
        *(now, came_by, kit_status.encode(status), device),
    )


def known(row: Mapping[str, Any]) -> KnownCondition | None:
    """Read COLUMNS; None where the kit has told nothing, or what it told is damaged in the
    database."""
    at, about = row["condition at"], row["condition about"]
    if at is None:
        return None
    details = None
    with suppress(RemoteProtocolError, ValueError, TypeError, LookupError):
        if about:
            members = json.loads(about)
            details = About(
                float(row["condition about_at"]), **{**members, "cause": CAUSES[members["cause"]]}
            )
        status = kit_status.decode(bytes(row["condition status"]))
        return KnownCondition(float(at), row["condition way"], status, details)
    return None


def until_now(hours: list[int | None], at: float, now: float) -> list[int | None]:
    """Return the last 24 hours, of those that were told then: of what came since nothing is
    known."""
    since = max(0, min(int((now - at) // HOUR), HOURS))
    return [*hours[since:], *[None] * since]
