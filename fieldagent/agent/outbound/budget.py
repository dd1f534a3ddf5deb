"""What a channel has cost today, and what it may cost still. A day is one of UTC."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import Spent

DAY = 86_400


def utc_day(unix: float) -> str:
    """The day of a Unix time as ISO 8601 has it, under which the journal books what was spent."""
    return datetime.fromtimestamp(unix, UTC).date().isoformat()


def until_midnight(unix: float) -> float:
    """Seconds until the next day, with its new budget, begins."""
    return DAY - unix % DAY


class Budget:
    """One channel's. `clock` is the journal's; a day is the wall clock's.

    `limit` is in credits a day, None where there is none; `reserve` of these are kept for
    transmissions that carry an SOS.
    """

    def __init__(
        self,
        name: str,
        journal: Journal,
        *,
        clock: Callable[[], float],
        limit: int | None = None,
        reserve: int = 0,
    ) -> None:
        self._name = name
        self._journal = journal
        self._clock = clock
        self._limit = limit
        self._reserve = reserve

    def spent(self) -> Spent:
        """Bytes and credits of today."""
        return outbound.spent_on(self._journal, self._name, self._today())

    def left(self, *, urgent: bool = False, mailbox: bool = False) -> int | None:
        """Credits that may still be spent today; None without a budget.

        `urgent` may use the reserve; a check of the `mailbox` leaves half of the day's credits to
        what the kit itself has to say.
        """
        if self._limit is None:
            return None
        kept = 0 if urgent else self._reserve
        if mailbox:
            kept = max(kept, -(-self._limit // 2))
        return max(0, self._limit - kept - self.spent().credits)

    def in_words(self) -> str:
        """What is spent, for people."""
        kept = f", {self._reserve} of them kept for an SOS" if self._reserve else ""
        spent = f"{self.spent().credits} of {self._limit} credits"
        return f"the budget of today is spent: {spent}{kept}; it is renewed at midnight UTC"

    def book(self, spent: Spent) -> Operation[None]:
        """Books it under today, in the commit of what it was spent for."""
        return outbound.spend(self._name, self._today(), spent)

    def _today(self) -> str:
        return utc_day(self._journal.clock.date(self._clock()))
