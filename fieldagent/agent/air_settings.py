"""Settings that limit a radio's air-time."""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.system.properties import Key, make_integer_reader


def _read_region(value: str) -> str:
    from fieldagent.agent.radios.regions import parse_region

    return parse_region(value)


def _read_megahertz(value: str) -> int:
    from fieldagent.agent.radios.lora import read_frequency

    return read_frequency(value)


KEYS = (
    Key(
        "radio-region",
        _read_region,
        None,
        "rules that limit the air-time of this radio: EU868, EU433, US915, AU915, or amateur,"
        " which has no limit (air-time is not limited)",
    ),
    Key(
        "radio-frequency",
        _read_megahertz,
        None,
        "frequency in MHz, such as 869.525, for a radio without its own frequency setting",
    ),
    Key(
        "radio-bit-rate",
        make_integer_reader(50, 10_000_000, "bits a second"),
        None,
        "bits per second on the air, for a radio that does not count its air-time, such as 1200"
        " for AX.25 on VHF",
    ),
)

EXAMPLE_VALUES = {"radio-region": "amateur", "radio-frequency": "869.525", "radio-bit-rate": "9600"}
"""Example values for a first settings file."""
REQUIRED_SETTINGS = {
    "radio-region": "radio-port",
    "radio-frequency": "radio-region",
    "radio-bit-rate": "radio-port",
}
"""The other setting that each of these settings requires."""


def find_faults(pairs: Mapping[str, str]) -> list[str]:
    """Return the errors of the setting `radio-region` in a settings file."""
    if "radio-region" not in pairs:
        return []
    # If there is no region, do not load the table of regions.
    from fieldagent.agent.radios import regions

    return regions.find_faults(pairs)
