"""Costs of satellite messages by kit and UTC day, as counted by the hub and by the operator.

The hub counts each MO session that the operator delivers, once per id of the operator. It also
counts each MT message that the operator accepts. The hub cannot count a session whose message was
lost behind the gateway, or a mailbox check that the operator does not report.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from fieldagent.hub.records.modem_kinds import find_modem_kind
from fieldagent.hub.records.usage_file import CountedDay
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.price import Price, format_sum
from fieldagent.system.wording import format_count
from fieldagent.wire.credit import compute_credits

RETENTION_S = 400 * 86_400.0
"""Seconds for which sessions and counts are kept. The time is long because bills arrive late."""
DAYS_DEFAULT = 31
"""Default number of days in a listing."""
NAMED_MAX = 5
"""Largest number of sessions that are listed in one line."""


def format_day(now: float) -> str:
    """Return the UTC day of a Unix time in ISO 8601."""
    return datetime.fromtimestamp(now, UTC).date().isoformat()


def choose_days(since: str | None, until: str | None, now: float) -> tuple[str, str]:
    """Return the first and last day of a listing. If `since` is None, the listing begins
    DAYS_DEFAULT days before `now`. If `until` is None, it ends today.
    """
    return since or format_day(now - DAYS_DEFAULT * 86_400.0), until or format_day(now)


class UsageDay(NamedTuple):
    """Usage of one kit on one day. The unit is the credit, or the byte for a modem that is billed
    by bytes.
    """

    day: str
    device: int
    name: str
    unit: str
    mo: int
    mt: int
    theirs: int | None
    """The operator's count, or None if no count was imported for the day."""
    unknown: tuple[str, ...]
    """Sessions that the operator counted and the hub did not receive."""
    operator: str | None
    """The device's operator, or None if the device has none."""
    counted_by: str | None
    """The operator whose count was imported."""

    @property
    def ours(self) -> int:
        """Return the number of MO and MT sessions that the hub counted on this day."""
        return self.mo + self.mt

    def describe_difference(self) -> str:
        """Return the difference between the two counts as a text for people, or an empty text if
        there is none. If the operator's count is missing, return "not imported".
        """
        if self.theirs is None:
            return "not imported"
        excess = self.theirs - self.ours
        named_ids = ", ".join(self.unknown[:NAMED_MAX])
        rest = len(self.unknown) - NAMED_MAX
        named_ids += f" and {rest} more" if rest > 0 else ""
        lost_text = f"sessions that did not reach this hub: {named_ids}" if named_ids else ""
        if excess > 0:
            cause = lost_text or "sessions that did not reach this hub, or mailbox checks"
            return f"{format_count(excess, self.unit)} more there: {cause}"
        if excess < 0:
            cause = "messages that the modem has not fetched, or an unbilled session"
            return f"{format_count(-excess, self.unit)} fewer there: {cause}"
        return lost_text


async def count_session(
    store: Store, imei: str, session: str, size: int, *, clock: Callable[[], float]
) -> None:
    """Count a session once per id of the operator. Implements `operator.CountSession`."""
    now = clock()

    def count(db: Db) -> None:
        for device, modem in db.execute("SELECT id, modem FROM device WHERE imei = ?", imei):
            paid = 0 if find_modem_kind(modem).by_bytes else max(1, compute_credits(size))
            db.execute(
                "INSERT INTO mo_session (device, session, day, bytes, credits)"
                " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                *(device, session, format_day(now), size, paid),
            )
        for table in ("mo_session", "operator_count"):
            db.execute(f"DELETE FROM {table} WHERE day < ?", format_day(now - RETENTION_S))

    await store.commit(count)


class ImportResult(NamedTuple):
    """Result of an import of an operator's counts."""

    days: int
    """Number of imported counts, each of one modem on one day. Only counts of modems that belong to
    devices of this hub are imported."""
    strangers: tuple[str, ...]
    """IMEIs that belong to no device of this hub."""


def store_counts(db: Db, operator: str, days: Sequence[CountedDay]) -> ImportResult:
    """Store an operator's counts. A new count replaces an earlier count of the same kit and day."""
    devices = dict(db.execute("SELECT imei, id FROM device WHERE imei IS NOT NULL"))
    for each in days:
        if (device := devices.get(each.imei)) is None:
            continue
        known_counts = {
            session
            for (session,) in db.execute("SELECT session FROM mo_session WHERE device = ?", device)
        }
        unknown = sorted(set(each.references) - known_counts)
        db.execute(
            "INSERT INTO operator_count (device, day, operator, messages, credits, bytes, unknown)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (device, day) DO UPDATE"
            " SET operator = excluded.operator, messages = excluded.messages,"
            " credits = excluded.credits, bytes = excluded.bytes, unknown = excluded.unknown",
            *(device, each.day, operator, each.messages, each.credits, each.bytes),
            json.dumps(unknown),
        )
    days_here = [each for each in days if each.imei in devices]
    strangers = sorted({each.imei for each in days} - set(devices))
    return ImportResult(len(days_here), tuple(strangers))


def list_days(
    db: Db, workspace: int, since: str, until: str, device: int | None = None
) -> list[UsageDay]:
    """Return the usage of each kit on each day, oldest first. `since` and `until` are ISO 8601
    dates. Both days are included.
    """
    names: dict[int, tuple[str, str, str | None]] = {
        id_: (name, modem, operator)
        for id_, name, modem, operator in db.execute(
            "SELECT id, name, modem, operator FROM device WHERE workspace = ?", workspace
        )
        if device in (None, id_)
    }
    query_values: tuple[str | int, ...] = (since, until)
    condition = "day >= ? AND day <= ?"
    if device is not None:
        condition, query_values = f"{condition} AND device = ?", (*query_values, device)
    totals: dict[tuple[str, int], dict[str, Any]] = {}
    for column, table in (("mo", "mo_session"), ("mt", "spent")):
        for day, counted_by, paid, size in db.execute(
            f"SELECT day, device, sum(credits), sum(bytes) FROM {table} WHERE {condition}"
            " GROUP BY day, device",
            *query_values,
        ):
            totals.setdefault((day, counted_by), {})[column] = (int(paid), int(size))
    for day, counted_by, paid, size, unknown, operator in db.execute(
        "SELECT day, device, credits, bytes, unknown, operator FROM operator_count"
        f" WHERE {condition}",
        *query_values,
    ):
        imported = {"theirs": (paid, size), "unknown": tuple(json.loads(unknown)), "by": operator}
        totals.setdefault((day, counted_by), {}).update(imported)
    return [
        _make_usage_day(day, counted_by, *names[counted_by], totals[day, counted_by])
        for day, counted_by in sorted(totals)
        if counted_by in names
    ]


def _make_usage_day(
    day: str, device: int, name: str, modem: str, operator: str | None, counts: dict[str, Any]
) -> UsageDay:
    index, unit = (1, "byte") if find_modem_kind(modem).by_bytes else (0, "credit")
    mo, mt = (counts.get(each, (0, 0))[index] for each in ("mo", "mt"))
    their_count = counts["theirs"][index] if "theirs" in counts else None
    unknown = counts.get("unknown", ())
    counter = counts.get("by")
    return UsageDay(day, device, name, unit, mo, mt, their_count, unknown, operator, counter)


Prices = Callable[[str | None], Price | None]
"""Maps an operator to its price per credit; None if no price is configured."""


def make_row(usage_day: UsageDay, price_of: Prices) -> dict[str, Any]:
    """Return a day as a row of a listing. The row contains the costs of both counts if their prices
    are known.
    """
    row: dict[str, Any] = {
        "day": usage_day.day,
        "device": usage_day.device,
        "name": usage_day.name,
        "unit": usage_day.unit,
        "mo": usage_day.mo,
        "mt": usage_day.mt,
        "hubCount": usage_day.ours,
        "operator": usage_day.theirs,
        "difference": usage_day.describe_difference(),
    }
    our_price, their_price = _find_prices(usage_day, price_of)
    if our_price is not None or their_price is not None:
        row["money"] = None if our_price is None else our_price.format_amount(usage_day.ours)
        row["operatorMoney"] = (
            None if their_price is None else their_price.format_amount(usage_day.theirs or 0)
        )
    return row


def _find_prices(usage_day: UsageDay, price_of: Prices) -> tuple[Price | None, Price | None]:
    """Return the prices per credit for the hub's count and for the operator's count. Both are None
    if the modem is billed by bytes.
    """
    if usage_day.unit != "credit":
        return None, None
    their_price = None if usage_day.theirs is None else price_of(usage_day.counted_by)
    return price_of(usage_day.operator or usage_day.counted_by), their_price


class Total(NamedTuple):
    """Totals of the usage that is billed in credits."""

    ours: int
    money: str
    """Cost of `ours`, or an empty text if no price is known."""
    compared: int
    """Part of `ours` on the days for which the operator's count was imported."""
    compared_money: str
    theirs: int
    their_money: str


def compute_total(days: Sequence[UsageDay], price_of: Prices) -> Total:
    """Return the totals for days that are billed in credits. Days billed by bytes are ignored. The
    amounts of money include only days with a known price.
    """
    priced_days = [(each, *_find_prices(each, price_of)) for each in days if each.unit == "credit"]
    both = [
        (each, our_price, their_price)
        for each, our_price, their_price in priced_days
        if each.theirs is not None
    ]
    return Total(
        sum(each.ours for each, _, _ in priced_days),
        format_sum((price, each.ours) for each, price, _ in priced_days if price),
        sum(each.ours for each, _, _ in both),
        format_sum((price, each.ours) for each, price, _ in both if price),
        sum(each.theirs or 0 for each, _, _ in both),
        format_sum((price, each.theirs or 0) for each, _, price in both if price),
    )
