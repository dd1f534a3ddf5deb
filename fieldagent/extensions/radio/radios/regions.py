"""Legal limits of air-time by region and frequency.

Sources: Europe's ERC Recommendation 70-03, annex 1 (EN 300 220-2, annex B); 47 CFR 15.247(a)(1)(i)
for radios narrower than 500 kHz, which hop; Australia's LIPD class licence. This table does not
cover power, antennas and licences.
"""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.agent.channels.air_time import AirLimit, Dwell
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import WrongProperty

WIDE_BANDWIDTH_HZ = 500_000
"""Bandwidth in Hz from which a radio does not need to hop between frequencies."""
FCC = Dwell(0.4, 20.0)


class Band(NamedTuple):
    """A frequency band from `low` to `high`, in MHz."""

    low: float
    high: float
    percent: float = 100.0
    dwell: Dwell | None = None
    """Dwell limit for signals narrower than `WIDE_BANDWIDTH_HZ`."""


REGIONS: dict[str, tuple[Band, ...]] = {
    "EU868": (
        Band(863.0, 865.0, 0.1),
        Band(865.0, 868.0, 1.0),
        Band(868.0, 868.6, 1.0),
        Band(868.7, 869.2, 0.1),
        Band(869.4, 869.65, 10.0),
        Band(869.7, 870.0, 1.0),
    ),
    "EU433": (Band(433.05, 434.79, 10.0),),
    "US915": (Band(902.0, 928.0, dwell=FCC),),
    "AU915": (Band(915.0, 928.0),),
    "amateur": (),
}
"""Bands by `radio-region`. A region without bands has no limit on air-time."""


def parse_region(value: str) -> str:
    """Parse the value of the setting `radio-region`, and return the region's name. Raises
    WrongProperty for any other value.
    """
    region_name = {each.lower(): each for each in REGIONS}.get(value.lower())
    if region_name is None:
        raise WrongProperty(f"must be one of {', '.join(REGIONS)}, not {value!r}")
    return region_name


def read_number(value: str) -> float:
    """Return the number in `value`, or -1 if it is not a number without a sign."""
    try:
        return float(value) if value.isascii() and value[:1].isdigit() else -1.0
    except ValueError:
        return -1.0


def read_frequency(value: str) -> int:
    """Parse a frequency in MHz, from 137 to 1020, and return it in Hz. Raises WrongProperty for any
    other value.
    """
    number = read_number(value)
    if not 137 <= number <= 1020:
        raise WrongProperty(f"must be in MHz, from 137 to 1020, such as 869.525, not {value!r}")
    return round(number * 1_000_000)


def find_air_limit(region: str, frequency: int | None, bandwidth: int | None) -> AirLimit:
    """Return the air-time limit at a frequency and bandwidth in Hz. The bandwidth may be None.

    Raises WrongProperty, with a text that follows `radio-region`, if no transmission is allowed at
    this frequency.
    """
    bands = REGIONS[region]
    if not bands:
        return AirLimit()
    if frequency is None:
        raise WrongProperty(f"{region} has a different limit in each band: set radio-frequency")
    for band in bands:
        if band.low <= frequency / 1e6 <= band.high:
            narrow = bandwidth is None or bandwidth < WIDE_BANDWIDTH_HZ
            return AirLimit(band.percent, band.dwell if narrow else None)
    allowed = ", ".join(f"{band.low:g} to {band.high:g}" for band in bands)
    raise WrongProperty(f"{region} has nothing at {frequency / 1e6:g} MHz, but {allowed} MHz")


def find_region_faults(settings: Mapping[str, str]) -> list[str]:
    """Return the errors of the configured region with the configured radio."""
    if "radio-region" not in settings:
        return []
    protocol = settings.get("radio-protocol", "node")
    if protocol == "meshtastic":
        return []
    try:
        region = parse_region(settings["radio-region"])
        figures = f"{protocol}-frequency", f"{protocol}-bandwidth"
        frequency, bandwidth = (settings.get(each) for each in figures)
        limit = find_air_limit(
            region,
            _read_hertz(frequency or settings.get("radio-frequency"), 1e6),
            _read_hertz(bandwidth, 1e3) or (None if frequency is None else 125_000),
        )
    except WrongProperty as wrong:
        return [f"radio-region {wrong}"]
    if limit != AirLimit() and frequency is None and "radio-bit-rate" not in settings:
        return [f"radio-region={region} needs radio-bit-rate, to know how long a packet takes"]
    return []


def _read_hertz(value: str | None, unit: float) -> int | None:
    """Return the value in Hz, or None if it is not a number, because the check of that setting
    reports the error.
    """
    try:
        return None if value is None else round(float(value) * unit)
    except ValueError:
        return None
