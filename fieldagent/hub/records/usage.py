"""What satellite messages cost, by kit and UTC day: as the hub counts it, and beside it as their
operator has counted it.

The hub counts each MO session that the operator brings, once by the operator's own name for it, and
each MT message that the operator took. What it cannot know is what never came: a session whose
message was lost behind the gateway, a mailbox check that the operator does not tell of.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from fieldagent.hub.records.usage_file import CountedDay
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.price import Price
from fieldagent.system.wording import counted
from fieldagent.wire.credit import credits_for

KEPT = 400 * 86_400.0
"""Seconds for which sessions and counts are kept: bills come late."""
NAMED_MAX = 5
"""Sessions that are named in a line."""


def day_of(now: float) -> str:
    """Return the UTC day of a Unix time, as ISO 8601 has it."""
    return datetime.fromtimestamp(now, UTC).date().isoformat()


class UsageDay(NamedTuple):
    """One kit on one day; credits, or bytes of a modem that is paid for those."""

    day: str
    device: int
    name: str
    unit: str
    mo: int
    mt: int
    theirs: int | None
    """None where nothing of that day was imported."""
    unknown: tuple[str, ...]
    """Sessions that the operator counted, and that did not come here."""

    @property
    def ours(self) -> int:
        """Return what the hub counts."""
        return self.mo + self.mt

    def difference(self) -> str:
        """Return what differs, for people; empty where nothing does."""
        if self.theirs is None:
            return "not imported"
        more = self.theirs - self.ours
        named = ", ".join(self.unknown[:NAMED_MAX])
        rest = len(self.unknown) - NAMED_MAX
        named += f" and {rest} more" if rest > 0 else ""
        lost = f"sessions that did not come here: {named}" if named else ""
        if more > 0:
            cause = lost or "sessions that did not come here, or mailbox checks"
            return f"{counted(more, self.unit)} more there: {cause}"
        if more < 0:
            cause = "what was handed over and not fetched, or a session that they have not billed"
            return f"{counted(-more, self.unit)} fewer there: {cause}"
        return lost


async def count_session_of(
    store: Store, imei: str, session: str, size: int, *, clock: Callable[[], float]
) -> None:
    """`operator.CountSession`: count a session, once by the operator's own name for it."""
    now = clock()

    def count(db: Db) -> None:
        db.execute(
            "INSERT INTO mo_session (device, session, day, bytes, credits)"
            " SELECT id, ?, ?, ?, CASE WHEN modem = 'imt' THEN 0 ELSE ? END FROM device"
            " WHERE imei = ? ON CONFLICT DO NOTHING",
            *(session, day_of(now), size, max(1, credits_for(size)), imei),
        )
        for table in ("mo_session", "operator_count"):
            db.execute(f"DELETE FROM {table} WHERE day < ?", day_of(now - KEPT))

    await store.commit(count)


class Imported(NamedTuple):
    """What came of an import."""

    days: int
    """Of modems that are devices here."""
    strangers: tuple[str, ...]
    """IMEIs that no device has."""


def take_counts(db: Db, operator: str, days: Sequence[CountedDay]) -> Imported:
    """Store what an operator has counted, instead of what was imported of the same kit and day."""
    devices = dict(db.execute("SELECT imei, id FROM device WHERE imei IS NOT NULL"))
    for each in days:
        if (device := devices.get(each.imei)) is None:
            continue
        known = {
            session
            for (session,) in db.execute("SELECT session FROM mo_session WHERE device = ?", device)
        }
        unknown = sorted(set(each.references) - known)
        db.execute(
            "INSERT INTO operator_count (device, day, operator, messages, credits, bytes, unknown)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (device, day) DO UPDATE"
            " SET operator = excluded.operator, messages = excluded.messages,"
            " credits = excluded.credits, bytes = excluded.bytes, unknown = excluded.unknown",
            *(device, each.day, operator, each.messages, each.credits, each.bytes),
            json.dumps(unknown),
        )
    here = [each for each in days if each.imei in devices]
    strangers = sorted({each.imei for each in days} - set(devices))
    return Imported(len(here), tuple(strangers))


def usage(
    db: Db, workspace: int, since: str, until: str, device: int | None = None
) -> list[UsageDay]:
    """Return each kit and day on which something was counted, the oldest first; days are ISO 8601's
    and both belong to it."""
    totals: dict[tuple[str, int], dict[str, Any]] = {}
    for column, table in (("mo", "mo_session"), ("mt", "spent")):
        for day, whose, paid, size in db.execute(
            f"SELECT day, device, sum(credits), sum(bytes) FROM {table} WHERE day >= ? AND day <= ?"
            " GROUP BY day, device",
            *(since, until),
        ):
            totals.setdefault((day, whose), {})[column] = (int(paid), int(size))
    for day, whose, paid, size, unknown in db.execute(
        "SELECT day, device, credits, bytes, unknown FROM operator_count"
        " WHERE day >= ? AND day <= ?",
        *(since, until),
    ):
        totals.setdefault((day, whose), {})["theirs"] = (paid, size)
        totals[day, whose]["unknown"] = tuple(json.loads(unknown))
    names = {
        id_: (name, modem)
        for id_, name, modem in db.execute(
            "SELECT id, name, modem FROM device WHERE workspace = ?", workspace
        )
    }
    found = []
    for (day, whose), counts in sorted(totals.items()):
        if whose not in names or device not in (None, whose):
            continue
        name, modem = names[whose]
        place, unit = (1, "byte") if modem == "imt" else (0, "credit")
        mo, mt = (counts.get(each, (0, 0))[place] for each in ("mo", "mt"))
        theirs = counts["theirs"][place] if "theirs" in counts else None
        unknown = counts.get("unknown", ())
        found.append(UsageDay(day, whose, name, unit, mo, mt, theirs, unknown))
    return found


def row_of(each: UsageDay, price: Price | None) -> dict[str, Any]:
    """Return it as a line of a listing; money is ours, and theirs where that is known."""
    row: dict[str, Any] = {
        "day": each.day,
        "device": each.device,
        "name": each.name,
        "unit": each.unit,
        "mo": each.mo,
        "mt": each.mt,
        "here": each.ours,
        "operator": each.theirs,
        "difference": each.difference(),
    }
    if price is not None and each.unit == "credit":
        row["money"] = price.of(each.ours)
        row["operatorMoney"] = None if each.theirs is None else price.of(each.theirs)
    return row
