"""What a satellite message costs: whole credits of 50 bytes (SBD), or its bytes (IMT)."""

from __future__ import annotations

from fieldagent.system.lazy_named_tuple import NamedTuple

CREDIT_BYTES = 50


class Tariff(NamedTuple):
    """What a message costs: each begun `step` of bytes is a `unit`, and `minimum` units
    are paid for at least. Without a unit it costs nothing."""

    unit: str
    step: int = CREDIT_BYTES
    minimum: int = 0
    booked: bool = True
    """Whether the end of a message books it; otherwise its driver has, as each copy left."""

    def units(self, size: int) -> int:
        """Return what a message of so many bytes costs."""
        return max(self.minimum, -(-size // self.step)) if self.unit else 0

    def paid_with(self, size: int) -> int:
        """Return the bytes that go for what `size` of them cost."""
        return max(self.minimum, -(-size // self.step)) * self.step

    def affordable(self, units: int) -> int:
        """Return the bytes that so many units pay for."""
        return 0 if units < self.minimum else units * self.step


FREE = Tariff("")
CREDITS = Tariff("credit")


def by_bytes(minimum: int) -> Tariff:
    """Return the tariff of an account that pays for bytes, and for `minimum` a message at least."""
    return Tariff("byte", 1, minimum)


def credits_for(size: int) -> int:
    """Return the credits that a message of so many bytes costs: one for each 50 begun."""
    return -(-size // CREDIT_BYTES)


def paid_with(size: int) -> int:
    """Return the bytes that go for what `size` of them cost."""
    return credits_for(size) * CREDIT_BYTES
