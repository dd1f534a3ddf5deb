"""The settings of the radio among kits: each key, and the errors in their combination."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldagent.agent.settings import get_channels, parse
from fieldagent.extensions.radio.settings import KEYS
from fieldagent.package.package import Channel
from fieldagent.system.properties import InvalidSettings

PATH = Path("agent.properties")
OTHER = "11" * 32
GOOD = {
    "radio-heal": "none",
    "radio-recovery-command": "uhubctl",
    "radio-port": "/dev/ttyACM0",
    "radio-protocol": "kiss",
    "radio-baud": "9600",
    "radio-callsign": "N0CALL-7",
    "radio-packet-bytes": "51",
    "radio-station": "7",
    "radio-name": "Hut",
    "radio-key": "00" * 32,
    "radio-key-next": "11" * 32,
    "radio-seal": "on",
    "radio-hops": "2",
    "radio-relay": "Cellular, satellite",
    "radio-relay-credits-per-day": "20",
    "radio-relay-down": "on",
    "radio-region": "eu868",
    "radio-frequency": "869.525",
    "radio-bit-rate": "9600",
}


def test_every_radio_setting_is_read() -> None:
    assert GOOD.keys() == {key.name for key in KEYS}
    settings = parse("".join(f"{name}={value}\n" for name, value in GOOD.items()), PATH)
    hubward = {Channel.CELLULAR, Channel.SATELLITE}
    keys = ((bytes(32),), (b"\x11" * 32,))
    known = ("/dev/ttyACM0", "kiss", 9600, (), "uhubctl", "N0CALL-7", 51, 7, "Hut", *keys, "on", 2)
    assert settings.parts["radio"] == (*known, hubward, 20, "on", "EU868", 869_525_000, 9600, {})
    assert get_channels(settings) == {Channel.RADIO}


def test_settings_of_the_configured_kind_are_read() -> None:
    lines = "radio-port=/dev/x\nradio-station=1\nradio-protocol=udp\nudp-loss=7\n"
    assert parse(lines, PATH).parts["radio"].own["udp-loss"] == 7
    with pytest.raises(InvalidSettings, match="is not a setting"):
        parse(lines.replace("=udp", "=node"), PATH)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "radio-callsign=n0call\nradio-port=/dev/x\nradio-station=1",
            "must be a call sign",
        ),
        ("radio-port=/dev/x", "radio-port needs radio-station"),
        (f"radio-key-next={OTHER}", "radio-key-next needs radio-key"),
        (f"radio-key-next={OTHER} {OTHER}", "radio-key-next must be one key"),
        (f"radio-key={OTHER} {'22' * 32}\nradio-key-next={OTHER}", "two keys in radio-key: remove"),
        (f"radio-key={OTHER}\nradio-key-next={OTHER}", "radio-key-next is the same as radio-key"),
        ("radio-relay=pigeon\nradio-port=/dev/x\nradio-station=1", "cellular, satellite or both"),
        ("radio-relay=cellular", "radio-relay needs radio-port"),
        (
            "radio-protocol=kiss\nradio-port=/dev/x\nradio-station=1",
            "radio-protocol=kiss needs radio-callsign",
        ),
    ],
)
def test_fault_of_radio_setting_names_key_and_remedy(line: str, said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        parse(line, PATH)
