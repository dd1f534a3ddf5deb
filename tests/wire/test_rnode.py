"""The frames for an RNode: the bytes of its list of commands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.wire import kiss
from fieldagent.wire import rnode as wire
from fieldagent.wire.lora import LoraSettings
from fieldagent.wire.rnode import RnodeBattery, RnodeCommand, RnodeMessage

SETTINGS = LoraSettings(869_525_000, 125_000, 8, 5)


@pytest.mark.parametrize(
    ("command", "content", "frame"),
    [
        (RnodeCommand.DETECT, wire.DETECT, "c00873c0"),
        (RnodeCommand.VERSION, b"\0", "c05000c0"),
        (RnodeCommand.STATE, wire.STATE_ON, "c00601c0"),
        (RnodeCommand.DATA, b"\xc0", "c000dbdcc0"),
        (RnodeCommand.ERROR, b"\3", "c09003c0"),
        (RnodeCommand.SHARE_OF_HOUR, wire.encode_air_share(1.0), "c00c0064c0"),
        (RnodeCommand.SHARE_OF_HOUR, wire.encode_air_share(200.0), "c00c2710c0"),
    ],
)
def test_commands_have_the_documented_bytes(
    command: RnodeCommand, content: bytes, frame: str
) -> None:
    assert wire.make_command_frame(command, content).hex() == frame
    (read,) = kiss.KissDeframer().receive_data(bytes.fromhex(frame))
    assert read == (command, content)


def test_settings_are_sent_as_one_command_each() -> None:
    frames = [
        wire.make_command_frame(*word).hex() for word in wire.make_settings_commands(SETTINGS, 14)
    ]
    assert frames == ["c00133d3e608c0", "c0020001e848c0", "c0030ec0", "c00408c0", "c00505c0"]
    words = [wire.describe_setting(*word) for word in wire.make_settings_commands(SETTINGS, 14)]
    assert words == ["869.525 MHz", "125 kHz", "14 dBm", "SF8", "4/5"]


@pytest.mark.parametrize(
    ("off", "agrees"), [(0, True), (100, True), (-100, True), (101, False), (-101, False)]
)
def test_reported_frequency_may_differ_by_100_hz(off: int, agrees: bool) -> None:
    asked = wire.make_settings_commands(SETTINGS, 14)[0]
    assert wire.is_same_value(asked, (SETTINGS.frequency + off).to_bytes(4, "big")) is agrees


def test_other_reported_settings_must_match_exactly() -> None:
    assert wire.is_same_value(RnodeMessage(RnodeCommand.POWER, b"\x0e"), b"\x0e")
    assert not wire.is_same_value(RnodeMessage(RnodeCommand.POWER, b"\x0e"), b"\x0d")
    assert not wire.is_same_value(RnodeMessage(RnodeCommand.FREQUENCY, bytes(4)), b"")


def test_rssi_snr_and_battery_are_read() -> None:
    assert wire.decode_rssi(b"\x28") == -117
    assert wire.decode_snr(b"\xea") == -6
    assert wire.decode_battery(b"\1\x57") == RnodeBattery(87, charging=False)
    assert wire.decode_battery(b"\2\x64") == RnodeBattery(100, charging=True)
    assert wire.decode_battery(b"\0\x57") is wire.decode_battery(b"\1\x65") is None


@given(st.binary(max_size=5))
def test_report_content_of_any_length_is_read_or_ignored(content: bytes) -> None:
    for read in (wire.decode_rssi, wire.decode_snr, wire.decode_battery):
        assert read(content) is None or len(content) in (1, 2)
    for word in wire.make_settings_commands(SETTINGS, 14):
        assert wire.describe_setting(word.command, content)
        assert wire.is_same_value(word, content) is (content == word.content) or len(content) == 4
