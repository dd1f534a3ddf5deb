"""The kit's settings of TAK phones on its own network."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldagent.agent.settings import parse
from fieldagent.extensions.tak.lan.settings import KEYS
from fieldagent.system.properties import InvalidSettings

GOOD = {
    "tak-lan": "192.168.4.1",
    "tak-lan-name": "Hut 7",
    "tak-lan-allow": "LEAD 1, COOK",
    "tak-lan-credits-per-day": "5",
    "tak-lan-messages-per-hour": "20",
}


def test_every_tak_lan_setting_is_read() -> None:
    assert GOOD.keys() == {key.name for key in KEYS}
    text = "".join(f"{name}={value}\n" for name, value in GOOD.items())
    settings = parse(text, Path("agent.properties")).parts["takLan"]
    assert settings.allow == {"LEAD 1", "COOK"}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("tak-lan=wlan0", "must be this kit's IPv4 address in that network"),
        ("tak-lan=0.0.0.0", "must be this kit's IPv4 address in that network"),
        ("tak-lan=239.2.3.1", "must be this kit's IPv4 address in that network"),
        ("tak-lan=10.0.0.1\ntak-lan-name=a\\tb", "1 to 40 printable characters"),
        ("tak-lan=10.0.0.1\ntak-lan-allow=,", "must be callsigns"),
        ("tak-lan-allow=COOK", "tak-lan-allow needs tak-lan"),
    ],
)
def test_invalid_tak_lan_setting_is_reported_with_key_and_remedy(line: str, fault: str) -> None:
    with pytest.raises(InvalidSettings, match=fault):
        parse(line, Path("agent.properties"))
