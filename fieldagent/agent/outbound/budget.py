"""Spent and remaining budget of a channel for the current UTC day."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta

from fieldagent.agent.journal import spending
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import Spent
from fieldagent.agent.journal.spending import BudgetDay
from fieldagent.system.elapsed_time import ElapsedTime
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.credit import CREDIT_BYTES, CREDIT_TARIFF, Tariff

DAY_S = 86_400
SOS_RESERVE = 10
"""Default credits per day that are kept for an SOS; at most half of the day's credits."""


def format_utc_day(unix: float) -> str:
    """Return the UTC date of a Unix time in ISO 8601. The journal stores costs by this date."""
    return datetime.fromtimestamp(unix, UTC).date().isoformat()


def compute_time_to_midnight(unix: float) -> float:
    """Return the seconds until the next UTC day, when a new budget begins."""
    return DAY_S - unix % DAY_S


def compute_day(last_day: BudgetDay | None, elapsed_s: float, clock: ElapsedTime) -> BudgetDay:
    """Return the budget's day at `elapsed_s`. `last_day` is the day that was used last.

    While no trusted clock is known, a day lasts 24 hours of elapsed time, and changes of the clock
    have no effect. When a trusted clock becomes available, the costs of the current 24 hours are
    assigned to its date.
    """
    unix = clock.date(elapsed_s)
    trusted = bool(clock.source())
    if last_day is None:
        return BudgetDay(format_utc_day(unix), elapsed_s - unix % DAY_S, trusted)
    days_passed = int((elapsed_s - last_day.since) // DAY_S)
    if not trusted:
        if days_passed < 1:
            return last_day._replace(trusted=False)
        day = date.fromisoformat(last_day.day) + timedelta(days=days_passed)
        return BudgetDay(day.isoformat(), last_day.since + days_passed * DAY_S, False)
    if last_day.day == format_utc_day(unix):
        return last_day._replace(trusted=True)
    carried = last_day.day if not last_day.trusted and days_passed < 1 else ""
    return BudgetDay(format_utc_day(unix), elapsed_s - unix % DAY_S, True, carried)


def format_credit_range(cost: Spent) -> str:
    """Return the credits as text: `12`, or `12 to 24` if it is unknown whether some of them were
    spent.
    """
    known = cost.credits
    return f"{known} to {known + cost.doubtful}" if cost.doubtful else str(known)


def compute_sos_reserve(limit: int | None, configured_reserve: int | None) -> int:
    """Return the credits of a day that are kept for an SOS, from the settings for the limit and the
    reserve.
    """
    if limit is None:
        return 0
    return (
        min(limit, configured_reserve)
        if configured_reserve is not None
        else min(SOS_RESERVE, limit // 2)
    )


class DayLimit(NamedTuple):
    """A day's limit in the tariff's units, and the part that is kept for an SOS."""

    limit: int | None = None
    reserve: int = 0


NO_LIMIT = DayLimit()


def make_bytes_limit(limit: int | None, reserve: int | None) -> DayLimit:
    """Return the limit for a modem that is billed by bytes; `reserve` is in credits of 50 bytes."""
    reserve_bytes = (SOS_RESERVE if reserve is None else reserve) * CREDIT_BYTES
    ordinary_limit = None if limit is None else limit if reserve is not None else limit // 2
    return DayLimit(limit, 0 if ordinary_limit is None else min(ordinary_limit, reserve_bytes))


class Budget:
    """Daily budget of one channel. `clock` is the journal's clock.

    `limits` contains the daily limit for each unit of a tariff. `tariff` returns the current
    tariff.
    """

    def __init__(
        self,
        name: str,
        journal: Journal,
        *,
        clock: Callable[[], float],
        limits: Mapping[str, DayLimit] = {},
        tariff: Callable[[], Tariff] = lambda: CREDIT_TARIFF,
    ) -> None:
        self._name = name
        self._journal = journal
        self._clock = clock
        self._limits = limits
        self._tariff = tariff

    def get_spent(self) -> Spent:
        """Return the bytes and credits that were spent today, and the additional credits that may
        have been spent.
        """
        return spending.read_spent(self._journal, self._name, self.get_today())

    @property
    def _limit(self) -> int | None:
        return self._limits.get(self._tariff().unit, NO_LIMIT).limit

    @property
    def _reserve(self) -> int:
        return self._limits.get(self._tariff().unit, NO_LIMIT).reserve

    def compute_remaining(
        self, *, urgent: bool = False, mailbox: bool = False, is_halved: bool = False
    ) -> int | None:
        """Return today's remaining budget in the tariff's units. Return None if there is no limit.

        If `urgent`, the result includes the reserve. If `mailbox` (a mailbox check), half of the
        day's limit is kept for the kit's own messages. An urgent mailbox check, for the answer to
        an SOS, keeps half of the reserve. If `urgent` and `is_halved`, for an SOS of others, half
        of the reserve is kept too. Costs that are in doubt count as spent, because the budget
        limits the highest possible bill.
        """
        if self._limit is None:
            return None
        reserve = -(-self._reserve // 2) if is_halved else 0 if urgent else self._reserve
        if mailbox:
            reserve = -(-self._reserve // 2) if urgent else max(reserve, -(-self._limit // 2))
        spent = self.get_spent()
        used_amount = (
            spent.bytes if self._tariff().unit == "byte" else spent.credits + spent.doubtful
        )
        return max(0, self._limit - reserve - used_amount)

    def compute_affordable(
        self, capacity: int, *, urgent: bool = False, is_halved: bool = False
    ) -> int:
        """Return the number of bytes, at most `capacity`, that the budget can pay for."""
        remaining = self.compute_remaining(urgent=urgent, is_halved=is_halved)
        return (
            capacity
            if remaining is None
            else min(capacity, self._tariff().compute_affordable_size(remaining))
        )

    def describe_limit(self) -> str:
        """Return a sentence for people: it states that today's budget is spent, its amount, and
        when the next budget begins.
        """
        reserve_text = f", {self._reserve} of them kept for an SOS" if self._reserve else ""
        by_bytes = self._tariff().unit == "byte"
        bytes_spent = f"{self.get_spent().bytes} of {self._limit} bytes"
        spent = (
            bytes_spent
            if by_bytes
            else f"{format_credit_range(self.get_spent())} of {self._limit} credits"
        )
        return f"the budget of today is spent: {spent}{reserve_text}; {self._describe_renewal()}"

    def _describe_renewal(self) -> str:
        """Return a text with the time when the next budget begins. The text does not depend on the
        present time, so it stays the same all day.
        """
        clock = self._journal.clock
        if clock.source():
            return "it is renewed at 00:00 UTC"
        moment = datetime.fromtimestamp(clock.date(self.get_today().since + DAY_S), UTC)
        return f"it is renewed at {moment:%H:%M} UTC by an unconfirmed clock"

    def book(self, cost: Spent, day: BudgetDay | None = None) -> Operation[None]:
        """Return the operation that books a cost for today or for an earlier `day`. The caller runs
        it in the commit that records the reason for the cost.
        """
        return spending.spend(self._name, day or self.get_today(), cost)

    def compute_renewal_wait(self) -> float:
        """Return the seconds until the next day's budget begins."""
        now, clock = self._clock(), self._journal.clock
        if clock.source():
            return compute_time_to_midnight(clock.date(now))
        return self.get_today().since + DAY_S - now

    def get_today(self) -> BudgetDay:
        """Return the budget's current day (see `compute_day`)."""
        return compute_day(
            spending.read_known_day(self._journal), self._clock(), self._journal.clock
        )
