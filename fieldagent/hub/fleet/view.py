"""Describes each kit of a workspace with its figures and findings, and answers `GET /api/fleet`.
Kits with differences come first.

`describe_fleet` only reads, and is one operation for `Store.read` or `once`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.caller import Caller, Purpose
from fieldagent.hub.field import check_in
from fieldagent.hub.fleet.outliers import TEXTS, Difference, KitFigures, find_outliers
from fieldagent.hub.records import kit_condition, lease
from fieldagent.hub.records.kit_condition import KnownCondition, LinkOnlyReport, shift_to_now
from fieldagent.hub.records.usage import format_day
from fieldagent.hub.store.contract import Db, Store, select
from fieldagent.package.writing import format_clock_time
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.kit_condition import (
    CAPPED,
    SINCE_BOOT,
    THROTTLED,
    UNDER_VOLTAGE,
    describe_throttling,
)
from fieldagent.wire.kit_status import CLOCKS, LINKS, STATES, KitStatus, format_span

SHOWN_MAX = 5_000
"""Largest number of kits that are compared and shown. These are the oldest kits in the
directory."""
FRESH_S = 86_400.0
"""Seconds after which a figure that can change quickly, such as the temperature, is too old."""

_KIT = {
    "id": "device.id",
    "name": "device.name",
    "member": "device.member",
    "member name": "member.name",
    "disabled": "device.disabled",
    "revoked": "device.revoked",
    "is linked": lease.IS_LINKED,
    "contact": "contact.at",
    "way": "contact.way",
    "version": "contact.version",
    **check_in.SHOWN_COLUMNS,
    "per day": "credits_per_day",
    "spent": "(SELECT credits FROM spent WHERE spent.device = device.id AND day = ?)",
    **kit_condition.COLUMNS,
}
_KITS = (
    "FROM device JOIN member ON member.id = device.member"
    " LEFT JOIN contact ON contact.device = device.id"
    " LEFT JOIN check_in ON check_in.device = device.id"
    " LEFT JOIN kit_condition ON kit_condition.device = device.id"
    " WHERE device.workspace = ? ORDER BY device.id LIMIT ?"
)


class FleetRow(NamedTuple):
    """A kit's state at the hub, not yet compared with the other kits."""

    row: dict[str, Any]
    """Row in the form of the API."""
    figures: KitFigures
    is_out: bool
    """True if the kit is disabled or revoked. Such a kit is not compared, and comes last."""


def describe_fleet(db: Db, workspace: int, now: float) -> dict[str, Any]:
    """Return the response of `GET /api/fleet`: `kits`, of which kits with findings come first, and
    `more`, the number of kits beyond `SHOWN_MAX`.
    """
    rows = select(db, _KIT, _KITS, now, format_day(now), workspace, SHOWN_MAX)
    ((count,),) = db.execute("SELECT count(*) FROM device WHERE workspace = ?", workspace)
    kits = [_describe_kit(row, now) for row in rows]
    inside = [kit for kit in kits if not kit.is_out]
    differences = find_outliers([kit.figures for kit in inside])
    ordered = sorted(zip(inside, differences, strict=True), key=lambda each: _rank(*each))
    entries = [
        {**kit.row, "findings": [_encode_outlier(each) for each in kit_outliers]}
        for kit, kit_outliers in ordered
    ]
    entries += [{**kit.row, "findings": []} for kit in kits if kit.is_out]
    return {"kits": entries, "more": count - len(kits)}


def _rank(kit: FleetRow, differences: Sequence[Difference]) -> tuple[Any, ...]:
    bad_count = sum(each.bad for each in differences)
    return -bad_count, -len(differences), _make_sort_key(kit.row["name"]), kit.row["id"]


def _make_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts kit 9 before kit 10."""
    parts = re.split(r"([0-9]{1,18})", name.casefold())
    return [(int(part), "") if at % 2 else (0, part) for at, part in enumerate(parts)]


def _encode_outlier(difference: Difference) -> dict[str, Any]:
    return {
        "id": difference.finding,
        "problem": difference.bad,
        "text": describe_outlier(difference),
        "values": dict(difference.values),
    }


def describe_outlier(difference: Difference) -> str:
    """Return a difference as a sentence for people."""
    values = dict(difference.values)
    if "age" in values:
        values["age"] = f"{values['age']} s" if values["age"] < 120 else format_span(values["age"])
    if "time" in values:
        values["time"] = format_clock_time(values["time"])
    return TEXTS[difference.finding].format_map(values)


def _describe_kit(row: Mapping[str, Any], now: float) -> FleetRow:
    condition = kit_condition.read_condition(row)
    is_disabled, is_revoked = row["disabled"] is not None, row["revoked"] is not None
    account = None
    if row["per day"] is not None:
        account = {"perDay": row["per day"], "spent": row["spent"] or 0}
    shown_kit = {
        "id": row["id"],
        "name": row["name"],
        "user": {"id": str(row["member"]), "name": row["member name"]},
        "disabled": is_disabled,
        "revoked": is_revoked,
        "linked": bool(row["is linked"]),
        "lastContact": None if row["contact"] is None else float(row["contact"]),
        "over": row["way"],
        "nextCheckIn": check_in.describe_check_in(row),
        "version": row["version"] or None,
        "credits": account,
        "status": None if condition is None else _describe_status(condition),
        "about": None
        if condition is None or condition.about is None
        else _describe_facts(condition.about, now),
    }
    figures = _make_figures(shown_kit, condition, now)
    return FleetRow(shown_kit, figures, is_disabled or is_revoked)


def _describe_status(condition: KnownCondition) -> dict[str, Any]:
    status = condition.status
    return {
        "at": condition.at,
        "over": condition.way,
        "diskFree": status.disk_free,
        "diskUsed": status.disk_used,
        "temperature": status.degrees,
        "voltage": None if status.millivolts is None else status.millivolts / 1000,
        "booted": condition.at - status.machine_uptime,
        "agentStarted": condition.at - status.uptime,
        "starts": status.starts,
        "links": _describe_links(status),
        "queued": status.queued,
        "creditsToday": status.credits_today,
        "creditsLeft": status.credits_left,
        "clockFrom": None if status.clock == CLOCKS[0] else status.clock,
        "deadLetters": status.dead_letters,
        "partsDown": status.faults,
        "trouble": status.trouble,
    }


def _describe_links(status: KitStatus) -> dict[str, dict[str, Any]]:
    links = zip(LINKS, status.links, status.signals, strict=True)
    return {
        name: {"state": state, "signal": bars} for name, state, bars in links if state != STATES[0]
    }


def _describe_facts(about: LinkOnlyReport, now: float) -> dict[str, Any]:
    throttling = None
    if about.throttled is not None:
        throttling = dict(
            zip(("now", "sinceBoot"), describe_throttling(about.throttled), strict=True)
        )
    return {
        "at": about.at,
        "system": about.system or None,
        "bootCause": about.cause,
        "startsOfDay": about.starts,
        "throttling": throttling,
        "clockAhead": about.clock,
        "signals": {
            name: shift_to_now(hours, about.at, now) for name, hours in about.signals.items()
        },
    }


def _make_figures(
    kit_row: Mapping[str, Any], condition: KnownCondition | None, now: float
) -> KitFigures:
    next_check_in = kit_row["nextCheckIn"]
    overdue = (
        next_check_in["due"] if next_check_in and next_check_in["state"] != "in time" else None
    )
    version = kit_row["version"] or ""
    budget = None
    if (account := kit_row["credits"]) is not None:
        budget = _compute_percent(account["perDay"] - account["spent"], account["perDay"])
    if condition is None:
        return KitFigures(version, budget=budget, overdue=overdue)
    status, facts_reported = condition.status, condition.about
    is_fresh = now - condition.at < FRESH_S
    known_facts = (
        facts_reported if facts_reported is not None and now - facts_reported.at < FRESH_S else None
    )
    if status.credits_left is not None and format_day(condition.at) == format_day(now):
        budget = _compute_percent(status.credits_left, status.credits_left + status.credits_today)
    bars = [] if known_facts is None else _list_bars(known_facts, now)
    throttled = 0 if known_facts is None else known_facts.throttled or 0
    return KitFigures(
        version,
        "" if facts_reported is None else facts_reported.system,
        100 - status.disk_used,
        status.degrees if is_fresh else None,
        None if known_facts is None else known_facts.starts,
        None if known_facts is None else known_facts.clock,
        is_fresh and status.clock == CLOCKS[0],
        median(bars) if bars else None,
        len(bars),
        budget,
        _format_time(throttled, UNDER_VOLTAGE),
        _format_time(throttled, CAPPED | THROTTLED),
        status.faults if is_fresh else 0,
        is_fresh and status.trouble,
        overdue,
    )


def _list_bars(about: LinkOnlyReport, now: float) -> list[int]:
    hours = about.signals.get("satellite", [])
    return [bars for bars in shift_to_now(hours, about.at, now) if bars is not None]


def _format_time(throttled: int, bits: int) -> str:
    if throttled & bits:
        return "now"
    return "before" if throttled >> SINCE_BOOT & bits else ""


def _compute_percent(part: int, total: int) -> int | None:
    return -(-100 * max(0, part) // total) if total > 0 else None


class FleetApi:
    """Route of the fleet. `clock` returns Unix time."""

    def __init__(
        self, store: Store, authentication: Authentication, *, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._clock = clock
        self._judge = authentication.judge(Purpose.READ)

    def make_routes(self) -> list[Route]:
        """Return the route `GET /api/fleet`."""
        return [Route("GET", "/api/fleet", self.answer_fleet, judge=self._judge)]

    async def answer_fleet(self, request: Request, caller: Caller) -> Response:
        """Return the condition of each kit, and its differences from the other kits."""
        refuse_others(request, ())
        return make_json_response(
            await self._store.read(lambda db: describe_fleet(db, caller.workspace, self._clock()))
        )
