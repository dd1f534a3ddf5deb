"""LoRa settings that both ends of a link must share, and the airtime of a packet with them.

Source: Semtech AN1200.13, "LoRa Modem Designer's Guide", section 3.
"""

from __future__ import annotations

from math import ceil

from fieldagent.system.lazy_named_tuple import NamedTuple

PREAMBLE = 8
"""Number of symbols of the preamble, without the 4.25 symbols at its end."""
SLOW_SYMBOL = 0.016
"""If a symbol takes at least this many seconds, radios use the more robust "low data rate" mode."""


class LoraSettings(NamedTuple):
    """Settings of one radio. Two radios receive each other if their frequency, bandwidth and
    spreading factor are equal.
    """

    frequency: int
    """Frequency in Hz."""
    bandwidth: int
    """Bandwidth in Hz."""
    spreading: int
    """Spreading factor, 5 to 12."""
    coding: int
    """Denominator of the coding rate 4/coding, 5 to 8."""

    def format_settings(self) -> str:
        """Return the settings for people: `869.525 MHz, 250 kHz, SF7, 4/5`."""
        megahertz, kilohertz = self.frequency / 1e6, self.bandwidth / 1e3
        return f"{megahertz:.6g} MHz, {kilohertz:g} kHz, SF{self.spreading}, 4/{self.coding}"


def compute_air_time(settings: LoraSettings, size: int) -> float:
    """Return the airtime in seconds of a packet of `size` bytes, with explicit header and CRC."""
    symbol = (1 << settings.spreading) / settings.bandwidth
    slow = 2 if symbol >= SLOW_SYMBOL else 0
    bits = 8 * size - 4 * settings.spreading + 28 + 16
    blocks = max(0, ceil(bits / (4 * (settings.spreading - slow))))
    return (PREAMBLE + 4.25 + 8 + blocks * settings.coding) * symbol
