"""Price of a satellite message: whole credits of 50 bytes, or the bytes themselves."""

from __future__ import annotations

from fieldagent.system.lazy_named_tuple import NamedTuple

CREDIT_BYTES = 50


class Tariff(NamedTuple):
    """Price of a message: one `unit` for every `step` bytes or part of it, and at least `minimum`
    units. If `unit` is empty, messages are free.
    """

    unit: str
    step: int = CREDIT_BYTES
    minimum: int = 0
    booked: bool = True
    """True if the price is booked when a transmission ends. False if the driver books each sent
    copy."""

    def compute_units(self, size: int) -> int:
        """Return the price of a message of `size` bytes, in units."""
        return max(self.minimum, -(-size // self.step)) if self.unit else 0

    def compute_paid_size(self, size: int) -> int:
        """Return the largest size in bytes that has the same price as `size` bytes."""
        return max(self.minimum, -(-size // self.step)) * self.step

    def compute_affordable_size(self, units: int) -> int:
        """Return the largest size in bytes that costs at most `units`."""
        return 0 if units < self.minimum else units * self.step


FREE_TARIFF = Tariff("")
CREDIT_TARIFF = Tariff("credit")


def make_byte_tariff(minimum: int) -> Tariff:
    """Return the tariff of an operator that bills bytes, at least `minimum` for each message."""
    return Tariff("byte", 1, minimum)


def compute_credits(size: int) -> int:
    """Return the price of a message in credits: one for every 50 bytes or part of it."""
    return -(-size // CREDIT_BYTES)


def compute_paid_size(size: int) -> int:
    """Return the largest size in bytes that has the same price as `size` bytes."""
    return compute_credits(size) * CREDIT_BYTES
