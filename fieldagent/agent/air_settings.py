"""The settings that say for how long a radio may be on the air."""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.system.properties import Key, whole


def _region(value: str) -> str:
    from fieldagent.agent.radios.regions import read

    return read(value)


def _megahertz(value: str) -> int:
    from fieldagent.agent.radios.lora import frequency

    return frequency(value)


KEYS = (
    Key(
        "radio-region",
        _region,
        None,
        "whose law says for how long this radio may be on the air at its frequency: EU868, EU433,"
        " US915, AU915, or amateur, which has no limit (nobody counts)",
    ),
    Key(
        "radio-frequency",
        _megahertz,
        None,
        "MHz, such as 869.525, of a radio that has no setting of its own for that",
    ),
    Key(
        "radio-bit-rate",
        whole(50, 10_000_000, "bits a second"),
        None,
        "bits a second on the air, of a radio that does not count its air-time itself: 1200 of"
        " AX.25 on VHF",
    ),
)

EXAMPLES = {"radio-region": "amateur", "radio-frequency": "869.525", "radio-bit-rate": "9600"}
"""For the first settings file."""
NEEDS = {
    "radio-region": "radio-port",
    "radio-frequency": "radio-region",
    "radio-bit-rate": "radio-port",
}
"""What means nothing without another."""


def faults(pairs: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the region that a settings file names."""
    if "radio-region" not in pairs:
        return []
    # Without one the table takes no memory.
    from fieldagent.agent.radios import regions

    return regions.faults(pairs)
