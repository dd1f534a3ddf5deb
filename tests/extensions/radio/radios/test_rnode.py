"""A board with RNode firmware, played by `tests/peers/rnode.py`: a kit's reaction when it refuses,
restarts, hangs, is silent, sends wrong data or is not provisioned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import RadioLost, ReceivedPacket, TransmitResult
from fieldagent.extensions.radio.radios import lora, rnode
from fieldagent.wire import rnode as wire
from tests.extensions.radio.radios.boards import Boards, boards_of, kits, opened
from tests.peers.rnode import Rnode
from tests.processes import until

LORA = {
    "radio-protocol": "rnode",
    "rnode-frequency": "869.525",
    "rnode-share": "10",
    "rnode-spreading": "8",
}
SET = "1=33d3e5de 2=0001e848 3=0e 4=08 5=05 c=07d0"
"""869 525 000 Hz less the chip's step, 125 000 Hz, 14 dBm, SF8, 4/5, and a fifth of an hour."""


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[Boards]:
    with boards_of("rnode", LORA, tmp_path) as there:
        yield there


async def test_rnode_is_configured_and_released(boards: Boards) -> None:
    link = ChannelLink()
    async with opened(boards, 1, link):
        assert boards.type("told 1") == f"on {SET}"
    until(lambda: boards.type("told 1") == f"off {SET} left")
    assert link.facts["lora"] == "869.525 MHz, 125 kHz, SF8, 4/5"
    assert (link.facts["firmware"], link.facts["battery"]) == ("1.80", 87)


async def test_rnode_packet_is_received_with_signal_strength(boards: Boards) -> None:
    async with opened(boards, 1) as one, opened(boards, 2) as other:
        assert await one.transmit(bytes(range(250)), urgent=False) is TransmitResult.TRANSMITTED
        assert await other.receive() == ReceivedPacket(bytes(range(250)), -117, -6)


@pytest.mark.parametrize(("times", "result"), [(3, "TRANSMITTED"), (1000, "DROPPED")])
async def test_full_rnode_queue_is_retried_until_timeout(
    boards: Boards, monkeypatch: pytest.MonkeyPatch, times: int, result: str
) -> None:
    monkeypatch.setattr(lora, "BUSY_MAX", 2.0)
    link = ChannelLink()
    async with opened(boards, 1, link) as one:
        boards.type(f"refuse 1 {times}")
        assert await one.transmit(b"hello", urgent=False) is TransmitResult[result]
    # A packet that was never on the air is not charged.
    assert round(link.air_time.compute_remaining()) == 360


async def test_rnode_without_ready_reports_is_paced(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first packet without a report, the next packets wait less. As soon as the board
    reports that it is ready, the reports count.
    """
    monkeypatch.setattr(rnode, "READY_AFTER", 3.0)
    async with opened(boards, 1) as one, opened(boards, 2) as other:
        boards.type("mute 1 3")
        results = []
        for text in (b"1", b"2", b"3", b"4", b"5"):
            results.append(await one.transmit(text, urgent=False))
            assert (await other.receive()).body == text
        assert [each.name for each in results] == [*["UNKNOWN"] * 3, *["TRANSMITTED"] * 2]


async def test_restarted_rnode_is_configured_before_transmission(
    boards: Boards, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(boards, 1) as one, opened(boards, 2) as other:
        boards.type("reset 1")
        with caplog.at_level(logging.WARNING):
            assert await one.transmit(b"hello", urgent=False) is TransmitResult.TRANSMITTED
        assert (await other.receive()).body == b"hello"
        assert "restarted and lost its settings" in caplog.text
        assert boards.type("told 1") == f"on {SET}"


async def test_rnode_restarted_with_stored_settings_is_configured_again(
    boards: Boards,
) -> None:
    """Such a board is on and would transmit on a frequency that was not chosen."""
    boards.type("break 1 stored")
    async with opened(boards, 1) as one, opened(boards, 2) as other:
        boards.type("reset 1")
        assert await one.transmit(b"hello", urgent=False) is TransmitResult.TRANSMITTED
        assert (await other.receive()).body == b"hello"
        assert boards.type("told 1") == f"on {SET}"


async def test_idle_rnode_is_configured_again_after_restart(boards: Boards) -> None:
    async with opened(boards, 1):
        boards.type("reset 1")
        while boards.type("told 1") != f"on {SET}":
            await trio.sleep(0.05)


async def test_hanging_rnode_raises_radio_lost(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rnode, "ANSWER_TIMEOUT_S", 0.2)
    with pytest.raises(BaseExceptionGroup) as raised:
        async with opened(boards, 1) as one:
            boards.type("hang 1")
            await one.transmit(b"hello", urgent=True)
    assert raised.group_contains(RadioLost, match="the radio does not answer")


async def test_rnode_that_answers_third_greeting_is_opened(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ESP32 restarts when its port is opened."""
    monkeypatch.setattr(rnode, "ANSWER_TIMEOUT_S", 1.0)
    boards.type("hang 1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_wake, boards)
        async with opened(boards, 1):
            assert boards.type("told 1") == f"on {SET}"


async def _wake(boards: Boards) -> None:
    await trio.sleep(1.5)
    boards.type("wake 1")


async def test_unprovisioned_rnode_is_reported_with_remedy(boards: Boards) -> None:
    boards.type("break 1 unprovisioned")
    with pytest.raises(BaseExceptionGroup) as raised:
        async with opened(boards, 1):
            raise AssertionError("an unprovisioned board is opened")
    assert raised.group_contains(RadioLost, match="not provisioned: run `rnodeconf --autoinstall`")


async def test_old_rnode_firmware_is_reported_with_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Rnode.firmware >= bytes([1, 52])
    monkeypatch.setattr(wire, "OLDEST_FIRMWARE", (1, 81))
    with boards_of("rnode", LORA, tmp_path) as boards, pytest.raises(BaseExceptionGroup) as raised:
        async with opened(boards, 1):
            raise AssertionError("a board with old firmware is opened")
    assert raised.group_contains(RadioLost, match="firmware is RNode 1.80, but .* --update")


async def test_noise_from_rnode_is_ignored(boards: Boards) -> None:
    async with opened(boards, 1) as one, opened(boards, 2) as other:
        boards.type("noise 1")
        boards.type("noise 2")
        # Half a packet also destroys the next one. Kits repeat unconfirmed packets.
        for _ in range(2):
            assert await one.transmit(b"hello", urgent=False) is TransmitResult.TRANSMITTED
        while (await other.receive()).body != b"hello":
            pass


async def test_setting_that_rnode_rejects_is_reported(boards: Boards) -> None:
    with pytest.raises(BaseExceptionGroup) as raised:
        async with opened(boards, 1, more={"rnode-power": "30"}):
            raise AssertionError("the board accepts the setting")
    assert raised.group_contains(RadioLost, match="set to 30 dBm, but reports 22 dBm; see rnode-")


async def test_firmware_of_rnode_limits_air_time_after_restart(
    boards: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds if the agent has restarted and forgotten its transmissions."""
    monkeypatch.setattr(lora, "BUSY_MAX", 0.5)
    little = {"rnode-share": "0.1", "rnode-spreading": "7"}
    link, sent = ChannelLink(), 0
    async with opened(boards, 1, link, little) as one:
        while await one.transmit(bytes(250), urgent=False) is TransmitResult.TRANSMITTED:
            sent += 1
        # By our own count at SF7: 3.6 s, 0.39 s each.
        assert sent == 9
        while await one.transmit(bytes(250), urgent=True) is TransmitResult.TRANSMITTED:
            sent += 1
        assert sent == 18
    async with opened(boards, 1, ChannelLink(), little) as one:
        # The board counts a millisecond per byte, and twice the share: 7.2 s, minus these 4.5.
        while await one.transmit(bytes(250), urgent=True) is TransmitResult.TRANSMITTED:
            sent += 1
    assert sent == 28


def test_agents_reach_each_other_over_rnode(boards: Boards) -> None:
    """Real agents. A board that restarts between two messages changes nothing."""
    with kits(boards, 1, 2) as (ada, ben):
        ada.expect("the radio works")
        ben.expect("the radio works")
        assert ada.post("Camp reached").body["status"] == "Delivered"
        boards.type("reset 1")
        sos = ada.post("leg broken", priority=100).body
        assert sos["status"] == "Delivered"
        assert "leg broken" in ben.expect("hook: ")
        heard = ben.call("GET", "/api/neighbours").body["neighbours"]
        assert [(each["rssi"], each["snr"]) for each in heard] == [(-117, -6)]
