"""A board with MeshCore's KISS modem firmware, played by `tests/peers/meshcore.py`: a kit's
reaction when it refuses, forgets, hangs, is silent or sends wrong data.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import RadioLost, ReceivedPacket, TransmitResult
from fieldagent.extensions.radio.radios import lora, meshcore_kiss
from tests.extensions.radio.radios.boards import Boards, boards_of, kits, opened

LORA = {
    "radio-protocol": "meshcore-kiss",
    "meshcore-kiss-frequency": "869.525",
    "meshcore-kiss-share": "10",
    "meshcore-kiss-spreading": "8",
}
SET = "08e6d33348e801000805"
"""869 525 000 Hz, 125 000 Hz, SF8, 4/5, little-endian, as in the document."""


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[Boards]:
    with boards_of("meshcore", LORA, tmp_path) as there:
        yield there


async def test_meshcore_board_is_configured(boards: Boards) -> None:
    link = ChannelLink()
    async with opened(boards, 1, link):
        assert boards.type("told 1") == f"{SET} 14 2"
    assert link.facts["lora"] == "869.525 MHz, 125 kHz, SF8, 4/5"


async def test_meshcore_packet_is_received_with_signal_strength(boards: Boards) -> None:
    link = ChannelLink()
    async with opened(boards, 1, link) as one, opened(boards, 2) as other:
        assert await one.transmit(bytes(range(250)), urgent=False) is TransmitResult.TRANSMITTED
        assert await other.receive() == ReceivedPacket(bytes(range(250)), -117, -6)
    # Ten per cent of an hour, minus a quarter of a second.
    assert round(link.air_time.compute_remaining()) == 360


async def test_board_with_other_settings_receives_nothing(boards: Boards) -> None:
    slow = {"meshcore-kiss-spreading": "9"}
    async with opened(boards, 1) as one, opened(boards, 2, more=slow) as other:
        await one.transmit(b"hello", urgent=False)
        with trio.move_on_after(0.5):
            raise AssertionError(await other.receive())


async def test_full_meshcore_queue_is_retried(boards: Boards) -> None:
    async with opened(boards, 1) as one, opened(boards, 2) as other:
        boards.type("refuse 1 3")
        assert await one.transmit(b"hello", urgent=False) is TransmitResult.TRANSMITTED
        assert (await other.receive()).body == b"hello"


async def test_packet_is_dropped_if_meshcore_queue_stays_full(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lora, "BUSY_MAX", 1.0)
    link = ChannelLink()
    async with opened(boards, 1, link) as one:
        boards.type("refuse 1 1000")
        assert await one.transmit(b"hello", urgent=False) is TransmitResult.DROPPED
    # A packet that was never on the air is not charged.
    assert round(link.air_time.compute_remaining()) == 360


async def test_missing_transmission_report_gives_unknown_result(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packet may have been transmitted. The next packet is sent as usual."""
    monkeypatch.setattr(meshcore_kiss, "RESULT_AFTER_S", 0.5)
    async with opened(boards, 1) as one:
        boards.type("mute 1 1")
        assert await one.transmit(b"hello", urgent=False) is TransmitResult.UNKNOWN
        assert await one.transmit(b"again", urgent=False) is TransmitResult.TRANSMITTED


async def test_restarted_meshcore_board_is_configured_before_transmission(
    boards: Boards, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(boards, 1) as one, opened(boards, 2) as other:
        boards.type("reset 1")
        with caplog.at_level(logging.WARNING):
            assert await one.transmit(b"hello", urgent=False) is TransmitResult.TRANSMITTED
        assert (await other.receive()).body == b"hello"
        assert "it reports 915 MHz, 250 kHz, SF10, 4/5" in caplog.text
        assert boards.type("told 1") == f"{SET} 14 2"


async def test_idle_meshcore_board_is_checked_and_configured_again(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this check, the board would receive no packet, and nothing would show that."""
    monkeypatch.setattr(meshcore_kiss, "CHECK_INTERVAL_S", 0.2)
    link = ChannelLink()
    async with opened(boards, 1, link):
        boards.type("reset 1")
        while boards.type("told 1") != f"{SET} 14 2" or "batteryMillivolts" not in link.facts:
            await trio.sleep(0.05)
    assert link.facts["batteryMillivolts"] == 3987


async def test_boot_output_of_meshcore_board_triggers_configuration(boards: Boards) -> None:
    async with opened(boards, 1):
        boards.type("reset 1")
        boards.type("noise 1")
        while boards.type("told 1") != f"{SET} 14 2":
            await trio.sleep(0.05)


async def test_hanging_meshcore_board_raises_radio_lost(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meshcore_kiss, "ANSWER_TIMEOUT_S", 0.2)
    with pytest.raises(BaseExceptionGroup) as raised:
        async with opened(boards, 1) as one:
            boards.type("hang 1")
            await one.transmit(b"hello", urgent=True)
    assert raised.group_contains(RadioLost, match="the radio does not answer")


async def test_noise_from_meshcore_board_is_ignored(boards: Boards) -> None:
    async with opened(boards, 1) as one, opened(boards, 2) as other:
        boards.type("noise 1")
        boards.type("noise 2")
        # Half a packet also destroys the next one. Kits repeat unconfirmed packets.
        for _ in range(2):
            assert await one.transmit(b"hello", urgent=False) is TransmitResult.TRANSMITTED
        while (await other.receive()).body != b"hello":
            pass


async def test_setting_that_meshcore_board_rejects_is_reported(boards: Boards) -> None:
    with pytest.raises(BaseExceptionGroup) as raised:
        async with opened(boards, 1, more={"meshcore-kiss-power": "30"}):
            raise AssertionError("the board accepts the setting")
    assert raised.group_contains(RadioLost, match="30 dBm: a value is out of its range; see")


async def test_meshcore_air_time_is_limited_with_reserve_for_sos(boards: Boards) -> None:
    """The share is a thousandth of an hour, at a millisecond per byte, and outlives the radio's
    line.
    """
    link, little = ChannelLink(), {"meshcore-kiss-share": "0.1"}
    async with opened(boards, 1, link, little) as one:
        sent = 0
        while await one.transmit(bytes(250), urgent=False) is TransmitResult.TRANSMITTED:
            sent += 1
    assert sent == 14
    async with opened(boards, 1, link, little) as one:
        assert await one.transmit(bytes(250), urgent=False) is TransmitResult.SPENT
        while await one.transmit(bytes(250), urgent=True) is TransmitResult.TRANSMITTED:
            sent += 1
    assert sent == 28


def test_agents_reach_each_other_over_meshcore(boards: Boards) -> None:
    """Real agents. A board that restarts between two messages changes nothing."""
    with kits(boards, 1, 2) as (ada, ben):
        ada.expect("the radio works")
        ben.expect("the radio works")
        assert ada.post("Camp reached").body["status"] == "Delivered"
        boards.type("reset 1")
        sos = ada.post("leg broken", priority=100).body
        assert sos["status"] == "Delivered"
        assert "leg broken" in ben.expect("hook: ")
        came = ben.call("GET", "/api/inbound").body["payloads"]
        texts = {each["body"]["payloads"][0]["events"][0]["content"] for each in came}
        assert texts == {"Camp reached", "leg broken"}
        radio = ada.call("GET", "/api/status").body["channels"]["Radio"]
        assert radio["lora"] == "869.525 MHz, 125 kHz, SF8, 4/5"
        heard = ben.call("GET", "/api/neighbours").body["neighbours"]
        assert [(each["rssi"], each["snr"]) for each in heard] == [(-117, -6)]
