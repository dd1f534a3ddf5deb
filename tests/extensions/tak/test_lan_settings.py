"""The kit's settings of TAK phones on its own network."""

from __future__ import annotations

from pathlib import Path

from fieldagent.agent.settings import parse
from fieldagent.extensions.tak.lan.settings import KEYS

GOOD = {
    "tak-lan": "192.168.4.1",
    "tak-lan-name": "Hut 7",
    "tak-lan-allow": "LEAD 1, COOK",
    "tak-lan-credits-per-day": "5",
    "tak-lan-messages-per-hour": "20",
}


def test_every_key_is_read() -> None:
    assert GOOD.keys() == {key.name for key in KEYS}
    text = "".join(f"{name}={value}\n" for name, value in GOOD.items())
    settings = parse(text, Path("agent.properties")).parts["takLan"]
    assert settings.allow == {"LEAD 1", "COOK"}
