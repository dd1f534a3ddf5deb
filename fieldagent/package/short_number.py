"""The short number of an SOS, which kit, neighbours and desk all show."""

from __future__ import annotations


def short_number(number: int) -> str:
    """Return the last three digits of the number by which its kit names an SOS. With the kit's name
    they show people which SOS is meant; programs use the whole number."""
    return f"{abs(number) % 1000:03}"
