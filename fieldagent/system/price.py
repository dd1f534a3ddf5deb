"""Price of a credit, in settings and for people."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import WrongProperty

_PRICE = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,6}))? ([A-Z]{3})", re.ASCII)


class Price(NamedTuple):
    """Price of one unit, in millionths of the currency's unit."""

    millionths: int
    currency: str
    """Code of the currency, three letters (ISO 4217)."""

    def of(self, units: float) -> str:
        """Return the price of several units for people: `1.44 EUR`. Below a hundredth, all decimals
        are shown.
        """
        millionths = round(self.millionths * units)
        hundredths, rest = divmod(millionths, 10_000)
        if millionths and not hundredths:
            return f"0.{millionths:06d}".rstrip("0") + f" {self.currency}"
        hundredths += rest >= 5_000
        return f"{hundredths // 100}.{hundredths % 100:02d} {self.currency}"


def sum_of(parts: Iterable[tuple[Price, float]]) -> str:
    """Return the total price by currency: `1.44 EUR and 0.50 USD`; empty without parts."""
    sums: dict[str, float] = {}
    for price, units in parts:
        sums[price.currency] = sums.get(price.currency, 0) + price.millionths * units
    return " and ".join(Price(round(sums[each]), each).of(1) for each in sorted(sums))


def credit_price(value: str) -> Price:
    """Read a setting of the form `0.12 EUR`. Raises WrongProperty."""
    match = _PRICE.fullmatch(value)
    if match is None:
        raise WrongProperty(f"must be an amount and a currency, such as 0.12 EUR, not {value!r}")
    return Price(int(match[1]) * 1_000_000 + int((match[2] or "").ljust(6, "0")), match[3])
