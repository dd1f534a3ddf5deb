"""Common parts of LoRa radios: their settings, and the airtimes in docs/how-to/radio.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fieldagent.agent.settings import parse
from fieldagent.system.properties import InvalidSettings
from fieldagent.wire.lora import LoraSettings, compute_air_time

PAGE = Path(__file__).parents[4] / "docs/how-to/radio.md"
WHOLE = {
    "radio-port": "/dev/ttyUSB0",
    "radio-station": "7",
    "radio-protocol": "meshcore-kiss",
    "meshcore-kiss-frequency": "869.525",
    "meshcore-kiss-share": "10",
}


def read(**more: str) -> None:
    pairs = {**WHOLE, **{f"meshcore-kiss-{name}": value for name, value in more.items()}}
    parse("".join(f"{name}={value}\n" for name, value in pairs.items()), Path("agent.properties"))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("frequency", "869525", "must be in MHz, from 137 to 1020"),
        ("frequency", "nan", "must be in MHz"),
        ("frequency", "-869", "must be in MHz"),
        ("bandwidth", "126", "must be 7.8, 10.4, .* or|must be 7.8"),
        ("spreading", "13", "must be a whole number from 5 to 12"),
        ("coding", "4", "must be a whole number from 5 to 8"),
        ("power", "31", "must be a whole number from 0 to 30"),
        ("share", "0", "must be from 0.1 to 100"),
        ("share", "101", "must be from 0.1 to 100"),
    ],
)
def test_invalid_lora_setting_is_reported(name: str, value: str, why: str) -> None:
    read()
    with pytest.raises(InvalidSettings, match=why):
        read(**{name: value})


@pytest.mark.parametrize("name", ["meshcore-kiss-frequency", "meshcore-kiss-share"])
def test_lora_frequency_and_share_are_required(name: str) -> None:
    text = "".join(f"{key}={value}\n" for key, value in WHOLE.items() if key != name)
    with pytest.raises(InvalidSettings, match=f"radio-protocol=meshcore-kiss needs {name}"):
        parse(text, Path("agent.properties"))


def test_air_times_match_table_in_radio_guide() -> None:
    rows = re.findall(
        r"^\| (\d+) \| ([\d.]+) s \| ([\d.]+) s \| ([\d ]+) \| ([\d ]+) \|$",
        PAGE.read_text(),
        re.MULTILINE,
    )
    assert [int(row[0]) for row in rows] == [7, 8, 9, 10, 11, 12]
    for spreading, small, large, tenth, hundredth in rows:
        settings = LoraSettings(869_525_000, 125_000, int(spreading), 5)
        assert small == f"{compute_air_time(settings, 50):.2f}"
        assert large == f"{compute_air_time(settings, 250):.2f}"
        counts = [int(each.replace(" ", "")) for each in (tenth, hundredth)]
        assert counts == [int(share / compute_air_time(settings, 250)) for share in (360, 36)]
