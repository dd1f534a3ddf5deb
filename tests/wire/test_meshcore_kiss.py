"""The frames for a MeshCore KISS modem: the bytes of its document, and LoRa's airtime."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.wire import meshcore_kiss as wire
from fieldagent.wire.lora import LoraSettings, compute_air_time
from fieldagent.wire.meshcore_kiss import MeshcoreCommand, MeshcoreMessage, MeshcoreReport

SETTINGS = LoraSettings(869_525_000, 125_000, 8, 5)


@pytest.mark.parametrize(
    ("command", "content", "frame"),
    [
        (MeshcoreCommand.PING, b"", "c00617c0"),
        (MeshcoreCommand.SET_RADIO, wire.encode_settings(SETTINGS), "c0060908e6d33348e801000805c0"),
        (MeshcoreCommand.SET_POWER, b"\xc0", "c0060adbdcc0"),
        (MeshcoreCommand.AIR_TIME, b"\xff", "c0060fffc0"),
        (MeshcoreCommand.SIGNAL_REPORT, b"\1", "c0061901c0"),
    ],
)
def test_commands_have_the_documented_bytes(
    command: MeshcoreCommand, content: bytes, frame: str
) -> None:
    assert wire.ask(command, content).hex() == frame


@given(
    st.builds(
        LoraSettings,
        *(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
        *(st.integers(0, 255), st.integers(0, 255)),
    )
)
def test_settings_survive_encoding(settings: LoraSettings) -> None:
    assert wire.decode_settings(wire.encode_settings(settings)) == settings


@given(st.binary(max_size=20))
def test_any_modem_message_is_read_or_ignored(content: bytes) -> None:
    word = wire.decode_message(content)
    assert (word is None) == (content == b"")
    for read in (wire.decode_settings, wire.decode_signal, wire.decode_number):
        read(content)
    assert (wire.decode_settings(content) is None) == (len(content) != 10)
    assert (wire.decode_signal(content) is None) == (len(content) != 2)
    assert (wire.decode_number(content) is None) == (len(content) not in (2, 4))


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        (MeshcoreReport.OK, True),
        (MeshcoreReport.ERROR, True),
        (0x97, True),
        (0x8B, False),
        (MeshcoreReport.TX_DONE, False),
    ],
)
def test_answer_is_distinguished_from_a_report(code: int, ends: bool) -> None:
    assert wire.is_answer_to(MeshcoreMessage(code, b""), MeshcoreCommand.PING) is ends


@pytest.mark.parametrize(
    ("spreading", "bandwidth", "coding", "size", "milliseconds"),
    [
        # Packets with AX.25's 16 bytes, preamble 8, explicit header and CRC.
        (7, 250_000, 5, 76, 69),
        (7, 250_000, 5, 255, 200),
        (9, 250_000, 5, 255, 625),
        (8, 125_000, 5, 255, 707),
        (10, 250_000, 5, 255, 1_148),
        (11, 250_000, 5, 255, 2_091),
        (8, 62_500, 8, 255, 2_213),
    ],
)
def test_lora_air_time_matches_known_values(
    spreading: int, bandwidth: int, coding: int, size: int, milliseconds: int
) -> None:
    settings = LoraSettings(868_100_000, bandwidth, spreading, coding)
    assert compute_air_time(settings, size) * 1000 == pytest.approx(milliseconds, abs=1)
