"""Settings for relaying neighbours' items over this kit."""

from __future__ import annotations

from fieldagent.package.package import Channel
from fieldagent.system.properties import Key, WrongProperty, make_choice_reader, make_integer_reader

_RELAY_CHANNELS = {"cellular": Channel.CELLULAR, "satellite": Channel.SATELLITE}


def _relay(value: str) -> frozenset[Channel]:
    channel_words = value.lower().replace(",", " ").split()
    if not channel_words or not set(channel_words) <= set(_RELAY_CHANNELS):
        raise WrongProperty(f"must be cellular, satellite or both, not {value!r}")
    return frozenset(_RELAY_CHANNELS[channel_word] for channel_word in channel_words)


KEYS = (
    Key(
        "radio-relay",
        _relay,
        frozenset[Channel](),
        "channels over which this kit relays items of neighbours to the hub: cellular,"
        " satellite (none)",
    ),
    Key(
        "radio-relay-credits-per-day",
        make_integer_reader(0, 1_000_000, "credits"),
        10,
        "maximum satellite credits per UTC day for neighbours; an SOS has 5 more (10)",
    ),
    Key(
        "radio-relay-down",
        make_choice_reader("off", "on"),
        "off",
        "on: send items from the hub to neighbours without a link by radio (off)",
    ),
)

REQUIRED_SETTINGS = {"radio-relay": "radio-port", "radio-relay-down": "radio-relay"}
"""Settings that require another setting, and the other setting."""
