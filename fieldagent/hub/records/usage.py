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
from typing import Any

from fieldagent.hub.records.usage_file import CountedDay
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.price import Price, sum_of
from fieldagent.system.wording import counted
from fieldagent.wire.credit import credits_for

KEPT = 400 * 86_400.0
"""Seconds for which sessions and counts are kept: bills come late."""
LISTED = 31
"""How many days back a listing begins that does not say."""
NAMED_MAX = 5
"""Sessions that are named in a line."""


def day_of(now: float) -> str:
    """Return the UTC day of a Unix time, as ISO 8601 has it."""
    return datetime.fromtimestamp(now, UTC).date().isoformat()


def days_asked(since: str | None, until: str | None, now: float) -> tuple[str, str]:
    """Return the first and the last day of a listing, of which either may be told."""
    return since or day_of(now - LISTED * 86_400.0), until or day_of(now)


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
    operator: str | None
    """The device's, by its name; None where it has none."""
    counted_by: str | None
    """Whose count it is that was imported."""

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
    """Count a session, as `operator.CountSession`, once by the operator's own name for it."""
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
    names: dict[int, tuple[str, str, str | None]] = {
        id_: (name, modem, operator)
        for id_, name, modem, operator in db.execute(
            "SELECT id, name, modem, operator FROM device WHERE workspace = ?", workspace
        )
        if device in (None, id_)
    }
    asked: tuple[str | int, ...] = (since, until)
    which = "day >= ? AND day <= ?"
    if device is not None:
        which, asked = f"{which} AND device = ?", (*asked, device)
    totals: dict[tuple[str, int], dict[str, Any]] = {}
    for column, table in (("mo", "mo_session"), ("mt", "spent")):
        for day, whose, paid, size in db.execute(
            f"SELECT day, device, sum(credits), sum(bytes) FROM {table} WHERE {which}"
            " GROUP BY day, device",
            *asked,
        ):
            totals.setdefault((day, whose), {})[column] = (int(paid), int(size))
    for day, whose, paid, size, unknown, operator in db.execute(
        f"SELECT day, device, credits, bytes, unknown, operator FROM operator_count WHERE {which}",
        *asked,
    ):
        imported = {"theirs": (paid, size), "unknown": tuple(json.loads(unknown)), "by": operator}
        totals.setdefault((day, whose), {}).update(imported)
    return [
        _usage_day(day, whose, *names[whose], totals[day, whose])
        for day, whose in sorted(totals)
        if whose in names
    ]


def _usage_day(
    day: str, device: int, name: str, modem: str, operator: str | None, counts: dict[str, Any]
) -> UsageDay:
    place, unit = (1, "byte") if modem == "imt" else (0, "credit")
    mo, mt = (counts.get(each, (0, 0))[place] for each in ("mo", "mt"))
    theirs = counts["theirs"][place] if "theirs" in counts else None
    unknown = counts.get("unknown", ())
    by = counts.get("by")
    return UsageDay(day, device, name, unit, mo, mt, theirs, unknown, operator, by)


Prices = Callable[[str | None], Price | None]
"""What a credit costs with an operator; None where nobody has said so."""


def row_of(each: UsageDay, price_of: Prices) -> dict[str, Any]:
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
    ours, theirs = _priced(each, price_of)
    if ours is not None or theirs is not None:
        row["money"] = None if ours is None else ours.of(each.ours)
        row["operatorMoney"] = None if theirs is None else theirs.of(each.theirs or 0)
    return row


def _priced(each: UsageDay, price_of: Prices) -> tuple[Price | None, Price | None]:
    """Return the prices of our count and of theirs: bytes have none."""
    if each.unit != "credit":
        return None, None
    theirs = None if each.theirs is None else price_of(each.counted_by)
    return price_of(each.operator or each.counted_by), theirs


class Total(NamedTuple):
    """The sum of what is paid in credits."""

    ours: int
    money: str
    """Empty without a price."""
    compared: int
    """Of ours, that of the days that were imported."""
    compared_money: str
    theirs: int
    their_money: str


def total_of(days: Sequence[UsageDay], price_of: Prices) -> Total:
    """Return the sum of the days that are paid in credits; days paid by bytes are left out, and
    money where there is no price."""
    paid = [(each, *_priced(each, price_of)) for each in days if each.unit == "credit"]
    both = [(each, ours, theirs) for each, ours, theirs in paid if each.theirs is not None]
    return Total(
        sum(each.ours for each, _, _ in paid),
        sum_of((price, each.ours) for each, price, _ in paid if price),
        sum(each.ours for each, _, _ in both),
        sum_of((price, each.ours) for each, price, _ in both if price),
        sum(each.theirs or 0 for each, _, _ in both),
        sum_of((price, each.theirs or 0) for each, _, price in both if price),
    )
