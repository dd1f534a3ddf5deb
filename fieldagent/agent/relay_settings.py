"""Settings of this kit's relay for its neighbours."""

from __future__ import annotations

from fieldagent.package.package import Channel
from fieldagent.system.properties import Key, WrongProperty, one_of, whole

_CARRIES = {"cellular": Channel.CELLULAR, "satellite": Channel.SATELLITE}


def _relay(value: str) -> frozenset[Channel]:
    words = value.lower().replace(",", " ").split()
    if not words or not set(words) <= set(_CARRIES):
        raise WrongProperty(f"must be cellular, satellite or both, not {value!r}")
    return frozenset(_CARRIES[word] for word in words)


KEYS = (
    Key(
        "radio-relay",
        _relay,
        frozenset[Channel](),
        "bring what neighbours ask for to the hub over these: cellular, satellite (none)",
    ),
    Key(
        "radio-relay-credits-per-day",
        whole(0, 1_000_000, "credits"),
        10,
        "most satellite credits a UTC day that neighbours may cost; an SOS has 5 more (10)",
    ),
    Key(
        "radio-relay-down",
        one_of("off", "on"),
        "off",
        "on: bring down by radio what the hub has for neighbours without a link (off)",
    ),
)

NEEDS = {"radio-relay": "radio-port", "radio-relay-down": "radio-relay"}
"""Settings that need another setting."""
