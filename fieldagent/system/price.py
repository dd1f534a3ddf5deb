"""Prices of credits: parsed from settings, and formatted for people. Also charges the CPU time of a
task to the account of its caller.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar

import trio

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import WrongProperty

T = TypeVar("T")
Pay = Callable[[float], None]
THREAD = 0.000_06
"""CPU seconds to pass work to a thread and back, without the work itself."""


def charge_nobody(seconds: float) -> None:
    """Do nothing. This is the account of tasks without a caller."""


_payer: ContextVar[Pay] = ContextVar("_payer", default=charge_nobody)


def charge_to(charge: Pay) -> None:
    """Set the function that charges CPU seconds of this task, and of the tasks that it starts from
    now on.
    """
    _payer.set(charge)


def get_payer() -> Pay:
    """Return the function that charges CPU seconds to the account of this task, or `charge_nobody`
    if no account was set.
    """
    return _payer.get()


async def run_billed(step: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
    """Run `step` in a thread, return its result, and charge its CPU time to this task's account. If
    cancelled, return at once; `step` is still charged when it ends.
    """
    pay, loop = get_payer(), trio.lowlevel.current_trio_token()

    def run() -> T:
        started_at = time.thread_time()
        try:
            return step()
        finally:
            # If the event loop has ended, no task is left to charge.
            with suppress(trio.RunFinishedError):
                loop.run_sync_soon(pay, THREAD + time.thread_time() - started_at)

    return await trio.to_thread.run_sync(run, limiter=limiter, abandon_on_cancel=True)


_PRICE = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,6}))? ([A-Z]{3})", re.ASCII)


class Price(NamedTuple):
    """Price of one unit, for example a credit, in millionths of the currency unit."""

    millionths: int
    currency: str
    """Code of the currency, three letters (ISO 4217)."""

    def format_amount(self, units: float) -> str:
        """Return the price of several units for people: `1.44 EUR`. An amount below a hundredth is
        shown with all decimals.
        """
        millionths = round(self.millionths * units)
        hundredths, rest = divmod(millionths, 10_000)
        if millionths and not hundredths:
            return f"0.{millionths:06d}".rstrip("0") + f" {self.currency}"
        hundredths += rest >= 5_000
        return f"{hundredths // 100}.{hundredths % 100:02d} {self.currency}"


def format_sum(parts: Iterable[tuple[Price, float]]) -> str:
    """Return the total price in each currency as text, such as `1.44 EUR and 0.50 USD`. Return ''
    if there are no parts.
    """
    sums: dict[str, float] = {}
    for price, units in parts:
        sums[price.currency] = sums.get(price.currency, 0) + price.millionths * units
    return " and ".join(Price(round(sums[each]), each).format_amount(1) for each in sorted(sums))


def read_credit_price(value: str) -> Price:
    """Parse a price such as `0.12 EUR`. Raises WrongProperty for any other value."""
    match = _PRICE.fullmatch(value)
    if match is None:
        raise WrongProperty(f"must be an amount and a currency, such as 0.12 EUR, not {value!r}")
    return Price(int(match[1]) * 1_000_000 + int((match[2] or "").ljust(6, "0")), match[3])
