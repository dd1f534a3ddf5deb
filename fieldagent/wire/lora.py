"""LoRa on the air: what both ends of a link must agree on, and for how long a packet takes it.

Source: Semtech AN1200.13, "LoRa Modem Designer's Guide", section 3.
"""

from __future__ import annotations

from math import ceil

from fieldagent.system.lazy_named_tuple import NamedTuple

PREAMBLE = 8
"""Symbols; 4.25 more end it."""
SLOW_SYMBOL = 0.016
"""Seconds of a symbol from which on radios send slow ones more robustly ("low data rate")."""


class LoraSettings(NamedTuple):
    """Those of one radio. Who hears another has the same frequency, bandwidth and spreading."""

    frequency: int
    """Hz."""
    bandwidth: int
    """Hz."""
    spreading: int
    """Spreading factor, 5 to 12."""
    coding: int
    """Of coding rate 4/coding, 5 to 8."""

    def in_words(self) -> str:
        """Return them as people write them: `869.525 MHz, 250 kHz, SF7, 4/5`."""
        megahertz, kilohertz = self.frequency / 1e6, self.bandwidth / 1e3
        return f"{megahertz:.6g} MHz, {kilohertz:g} kHz, SF{self.spreading}, 4/{self.coding}"


def air_time(settings: LoraSettings, size: int) -> float:
    """Return the seconds that a packet of `size` bytes takes, with explicit header and CRC."""
    symbol = (1 << settings.spreading) / settings.bandwidth
    slow = 2 if symbol >= SLOW_SYMBOL else 0
    bits = 8 * size - 4 * settings.spreading + 28 + 16
    blocks = max(0, ceil(bits / (4 * (settings.spreading - slow))))
    return (PREAMBLE + 4.25 + 8 + blocks * settings.coding) * symbol
