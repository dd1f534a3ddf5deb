"""A KISS TNC that the test plays, on a pty and on TCP: pacing, silence, damage, loss."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import RadioLost, TransmitResult
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.extensions.lab.simulator.pty_port import open_pty
from fieldagent.extensions.radio.contract import RadioPlace
from fieldagent.extensions.radio.radios.kiss import DESTINATION, TncModem, check_tnc, open_tnc
from fieldagent.wire import ax25, kiss
from fieldagent.wire.envelope import Ack, Entry, encode
from tests.kit import RATES


@pytest.fixture(params=RATES)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock:
    """Both ends are in this process, so no byte is in transit for longer."""
    return trio.testing.MockClock(request.param, autojump_threshold=0)


ROOT = Path(__file__).parents[3]
ALL_BYTES = bytes(range(256))[:200]


@dataclass
class ScriptedTnc:
    """The other end of the line. `waits` contains its answers, or None for silence."""

    stream: Any
    waits: Callable[[int], int | None]
    frames: list[ax25.Frame | None] = field(default_factory=list)
    asked: int = 0
    got: bytearray = field(default_factory=bytearray)
    echoes: bool = False

    async def run(self) -> None:
        deframer = kiss.KissDeframer()
        with suppress(trio.ClosedResourceError):
            while data := await self.stream.receive_some(4096):
                self.got += data
                if self.echoes:
                    await self.stream.send_all(data)
                for command, content in deframer.receive_data(bytes(data)):
                    await self.receive_message(command, content)

    async def receive_message(self, command: int, content: bytes) -> None:
        if command == kiss.DATA:
            self.frames.append(ax25.decode(content))
        elif content == kiss.QUERY:
            self.asked += 1
            waiting = self.waits(self.asked)
            if waiting is not None:
                answer = b"TXBUF:%d" % waiting
                await self.stream.send_all(kiss.encode(answer, kiss.SET_HARDWARE))

    async def hears(self, *frames: bytes, segment: int = 1000) -> None:
        data = b"".join(kiss.encode(frame) for frame in frames)
        for at in range(0, len(data), segment):
            await self.stream.send_all(data[at : at + segment])


def ui(info: bytes, source: str = "N0CALL-2", destination: str = str(DESTINATION)) -> bytes:
    frame = ax25.Frame(ax25.parse_callsign(source), ax25.parse_callsign(destination), info)
    return ax25.encode(frame)


@asynccontextmanager
async def tnc(
    place: str, path: Path, waits: Callable[[int], int | None] = lambda asked: 0
) -> AsyncIterator[tuple[ScriptedTnc, TncModem, ChannelLink]]:
    link = ChannelLink()
    async with trio.open_nursery() as nursery:
        if place == "tcp":
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listener.socket.getsockname()[1]
            place = f"tcp://127.0.0.1:{port}"
            async with (
                listener,
                open_tnc(RadioPlace(place, 9600, "N0CALL-1"), link) as air,
                await listener.accept() as stream,
            ):
                scripted = ScriptedTnc(stream, waits)
                nursery.start_soon(scripted.run)
                yield scripted, air, link
                nursery.cancel_scope.cancel()
        else:
            place = str(path / "tnc")
            async with (
                open_pty(path / "tnc") as line,
                open_tnc(RadioPlace(place, 9600, "N0CALL-1"), link) as air,
            ):
                scripted = ScriptedTnc(line, waits)
                nursery.start_soon(scripted.run)
                yield scripted, air, link
                nursery.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


def test_documented_ax25_frame_matches_the_code() -> None:
    """`docs/reference/node-link.md` maps a packet to AX.25 and KISS in this way."""
    packet = encode([Entry(12, Ack(7, digest=bytes.fromhex("a1b2c3d4")))], origin=5)
    frame = ax25.encode(ax25.Frame(ax25.parse_callsign("N0CALL-7"), DESTINATION, packet))
    assert f"`{kiss.encode(frame).hex()}`" in (ROOT / "docs/reference/node-link.md").read_text()


@pytest.mark.parametrize("place", ["tcp", "pty"])
async def test_packets_of_all_byte_values_pass_tnc_both_ways(
    place: str, tmp_path: Path, clock: Any
) -> None:
    async with tnc(place, tmp_path) as (scripted, air, _):
        assert await air.transmit(ALL_BYTES, urgent=False) is TransmitResult.TRANSMITTED
        (frame,) = scripted.frames
        assert frame == ax25.Frame(ax25.Callsign("N0CALL", 1), DESTINATION, ALL_BYTES)
        await scripted.hears(ui(ALL_BYTES), ui(b"\xc0\xdb"), segment=3)
        assert [(await air.receive()).body, (await air.receive()).body] == [ALL_BYTES, b"\xc0\xdb"]


@pytest.mark.parametrize(
    ("waits", "result", "asked"),
    [
        (lambda asked: max(0, 400 - 100 * asked), TransmitResult.TRANSMITTED, 4),
        (lambda asked: None, TransmitResult.UNKNOWN, 1),
        (lambda asked: 0 if asked == 1 else None, TransmitResult.TRANSMITTED, 1),
    ],
)
async def test_packet_is_transmitted_once_tnc_buffer_is_empty(
    tmp_path: Path, clock: Any, waits: Any, result: TransmitResult, asked: int
) -> None:
    async with tnc("tcp", tmp_path, waits) as (scripted, air, _):
        assert await air.transmit(b"x", urgent=False) is result
        assert scripted.asked == asked


async def test_packet_is_dropped_if_tnc_buffer_never_empties(tmp_path: Path, clock: Any) -> None:
    async with tnc("tcp", tmp_path, lambda asked: 50) as (_, air, _):
        assert await air.transmit(b"x", urgent=False) is TransmitResult.DROPPED


async def test_transmit_waits_for_air_time_of_packet(tmp_path: Path, clock: Any) -> None:
    async with tnc("tcp", tmp_path) as (_, air, _):
        began = trio.current_time()
        assert await air.transmit(bytes(200), urgent=False) is TransmitResult.TRANSMITTED
        assert trio.current_time() - began > 200 * 8 / 1200


async def test_packet_in_tnc_buffer_for_minute_is_dropped(tmp_path: Path, clock: Any) -> None:
    began = trio.current_time()

    def waits(asked: int) -> int:
        return 50 if trio.current_time() - began < 60 else 0

    async with tnc("tcp", tmp_path, waits) as (_, air, _):
        assert await air.transmit(b"x", urgent=False) is TransmitResult.DROPPED


async def test_tnc_without_buffer_query_is_queried_once(tmp_path: Path, clock: Any) -> None:
    async with tnc("tcp", tmp_path, lambda asked: None) as (scripted, air, _):
        for _ in range(3):
            began = trio.current_time()
            assert await air.transmit(bytes(200), urgent=False) is TransmitResult.UNKNOWN
            assert trio.current_time() - began > 200 * 8 / 1200
        assert scripted.asked == 1


async def test_foreign_and_damaged_frames_are_ignored_and_counted(
    tmp_path: Path, clock: Any
) -> None:
    async with tnc("tcp", tmp_path) as (scripted, air, link):
        await scripted.hears(
            ui(b"beacon", destination="APRS"),
            ui(b"our own, repeated", source="N0CALL-1"),
            b"damaged",
            ui(b"other layer")[:15] + b"\xcfother layer",
            ui(b"for us"),
        )
        await scripted.stream.send_all(b"\xc0\x00\xdb\x01\xc0")
        await scripted.hears(ui(b"and this"))
        assert [(await air.receive()).body, (await air.receive()).body] == [b"for us", b"and this"]
        assert (link.facts["ignoredFrames"], link.facts["damagedFrames"]) == (3, 2)


async def test_late_first_answer_of_tnc_is_used(tmp_path: Path, clock: Any) -> None:
    async with tnc("tcp", tmp_path, lambda asked: None) as (scripted, air, _):
        assert await air.transmit(b"x", urgent=False) is TransmitResult.UNKNOWN
        await scripted.stream.send_all(kiss.encode(b"TXBUF:0", kiss.SET_HARDWARE))
        await scripted.hears(ui(b"behind it"))
        assert (await air.receive()).body == b"behind it"
        scripted.waits = lambda asked: max(0, 3 - asked)
        assert await air.transmit(b"x", urgent=False) is TransmitResult.TRANSMITTED
        assert scripted.asked == 3


async def test_tnc_that_stops_answering_raises_radio_lost(tmp_path: Path, clock: Any) -> None:
    async with tnc("tcp", tmp_path, lambda asked: 50 if asked == 1 else None) as (_, air, _):
        with pytest.raises(RadioLost, match="does not answer any more"):
            await air.transmit(b"x", urgent=False)


async def test_tnc_that_accepts_no_data_raises_radio_lost(clock: Any) -> None:
    async def stuck(*_: object) -> Any:
        await trio.sleep_forever()

    air = TncModem(stuck, stuck, ax25.Callsign("N0CALL", 1), ChannelLink())
    with pytest.raises(RadioLost, match="accepts no more data"):
        await air.transmit(b"x", urgent=False)


@pytest.mark.parametrize("segment", [1, 7, 1000])
async def test_tnc_in_command_mode_is_switched_back_to_kiss(
    tmp_path: Path, clock: Any, segment: int
) -> None:
    raw = (Path(__file__).parent / "tnc_in_command_mode.bin").read_bytes()
    with pytest.RaisesGroup(
        pytest.RaisesExc(RadioLost, match="command mode"), flatten_subgroups=True
    ):
        async with tnc("tcp", tmp_path) as (scripted, air, _):
            got = scripted.got
            for at in range(0, len(raw), segment):
                await scripted.stream.send_all(raw[at : at + segment])
            await air.receive()
    assert b"\rKISS ON\rRESTART\r" in got


async def test_echoing_tnc_is_switched_back_to_kiss(tmp_path: Path, clock: Any) -> None:
    """In command mode, the TNC waits for a line end, so it shows no prompt."""
    with pytest.RaisesGroup(
        pytest.RaisesExc(RadioLost, match="command mode"), flatten_subgroups=True
    ):
        async with tnc("tcp", tmp_path, lambda asked: None) as (scripted, air, _):
            scripted.echoes, got = True, scripted.got
            await air.transmit(b"x", urgent=False)
    assert b"\rKISS ON\rRESTART\r" in got


async def test_prompt_text_in_packet_is_received_as_data(tmp_path: Path, clock: Any) -> None:
    text = b"\rcmd:EH?\r\ncmd:"
    async with tnc("tcp", tmp_path) as (scripted, air, _):
        await scripted.hears(ui(text), segment=1)
        assert (await air.receive()).body == text


async def test_frames_of_other_kiss_port_are_ignored(tmp_path: Path, clock: Any) -> None:
    async with tnc("tcp", tmp_path) as (scripted, air, link):
        await scripted.stream.send_all(kiss.encode(ui(b"a second radio's"), port=1))
        await scripted.hears(ui(b"ours"))
        assert (await air.receive()).body == b"ours"
        assert link.facts["ignoredFrames"] == 1


@pytest.mark.parametrize("place", ["tcp", "pty"])
async def test_tnc_that_disappears_within_frame_raises(place: str, tmp_path: Path) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc((RadioLost, PortLost)), flatten_subgroups=True):
        async with tnc(place, tmp_path) as (scripted, air, _):
            await scripted.stream.send_all(kiss.encode(ui(b"cut"))[:9])
            await scripted.stream.aclose()
            await air.receive()


async def test_missing_tnc_raises_radio_lost() -> None:
    with pytest.raises(RadioLost, match="does the TNC run"):
        async with open_tnc(RadioPlace("tcp://127.0.0.1:9", callsign="N0CALL"), ChannelLink()):
            pass


@pytest.mark.parametrize("place", ["tcp://[::1", "tcp://tnc:x"])
async def test_invalid_tnc_address_is_reported(place: str) -> None:
    there = RadioPlace(place, callsign="N0CALL")
    assert "cannot be reached" in check_tnc(there).text
    with pytest.raises(RadioLost, match="cannot be reached"):
        async with open_tnc(there, ChannelLink()):
            pass
