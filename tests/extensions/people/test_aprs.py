"""APRS as people's radio: the kit's messages to a station and from it, with our own TNC."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf
from random import Random

import aprslib
import pytest
import trio
from trio.testing import MockClock

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.extensions.people import meshcore
from fieldagent.extensions.people.aprs import LISTENS_ONLY, AprsPeople, is_handle, open_aprs
from fieldagent.extensions.people.contract import (
    PRECISE,
    HandheldMarker,
    HandheldName,
    HandheldPlace,
    HandheldPosition,
    HandheldReport,
    HandheldText,
    TextOutcome,
)
from fieldagent.extensions.people.replies import FULL_DISK_REPLY
from fieldagent.system.error_groups import get_first_error
from fieldagent.wire import ax25, kiss
from tests.processes import PATIENCE

NOW = 1_790_000_000.0
KIT, ADA = "HB9ABC-7", "N0CALL-9"
PLACE = "!4722.61N/00832.50E>"


def make_frame(source: str, info: str, *via: str, to: str = "APRS") -> bytes:
    path = tuple(map(ax25.parse_callsign, via))
    sent = ax25.Frame(ax25.parse_callsign(source), ax25.parse_callsign(to), info.encode(), path)
    return kiss.encode(ax25.encode(sent))


def make_message_to_kit(text: str) -> str:
    return f":{KIT.ljust(9)}:{text}"


@dataclass
class Tnc:
    """A line to a TNC. `sent` contains its transmissions as (moment, information)."""

    sent: list[tuple[float, str]] = field(default_factory=list)
    answer: Callable[[str], bytes] = lambda info: b""
    frames: Counter[str] = field(default_factory=Counter)
    give: trio.MemorySendChannel[bytes] = field(init=False)
    took: trio.MemoryReceiveChannel[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.give, self.took = trio.open_memory_channel[bytes](inf)

    async def read(self) -> bytes:
        return await self.took.receive()

    async def write(self, data: bytes) -> None:
        for _, content in kiss.KissDeframer().receive_data(data):
            written = ax25.decode(content)
            assert written is not None
            assert str(written.source) == KIT
            info = written.info.decode()
            aprslib.parse(f"{written.source}>{written.destination}:{info}")
            self.sent.append((trio.current_time(), info))
            self.give.send_nowait(self.answer(info))

    def hear(self, *frames: bytes) -> None:
        self.give.send_nowait(b"".join(frames))

    def became(self, what: str) -> None:
        self.frames[what] += 1

    @property
    def said(self) -> list[str]:
        return [info for _, info in self.sent]


@asynccontextmanager
async def aprs_at(tnc: Tnc, call: str = KIT, *unlisted: str) -> AsyncIterator[AprsPeople]:
    async with trio.open_nursery() as nursery:
        place = HandheldPlace("", call, 9600, lambda handle: handle not in unlisted, tnc.became)
        people = AprsPeople(tnc, place, nursery, lambda: NOW + trio.current_time())
        nursery.start_soon(people.listen)
        yield people
        nursery.cancel_scope.cancel()


def run_in_virtual_time(work: Callable[[], Awaitable[None]]) -> None:
    trio.run(work, clock=MockClock(autojump_threshold=0))


async def receive_all(people: AprsPeople) -> list[HandheldReport]:
    """Return all reports until a quiet minute. All of them are on disk then."""
    items = []
    while True:
        with trio.move_on_after(60):
            items.append(await people.receive())
            continue
        return items


def test_tracker_reports_its_name_and_position() -> None:
    async def work() -> None:
        tnc = Tnc()
        async with aprs_at(tnc, "") as people:
            tnc.hear(make_frame(ADA, PLACE), make_frame(ADA, "!4722.  N/00832.  E>"))
            tnc.hear(make_frame("HB9GW", f"}}BEN-1>APRS,TCPIP,HB9GW*:{PLACE}"))
            named, first, blurred, ben, far = await receive_all(people)
        assert (named.handle, named.what) == ("n0call-9", HandheldName(ADA, b""))
        assert isinstance(first.what, HandheldPosition)
        assert first.what.where.latitude == pytest.approx(47 + 22.61 / 60)
        assert first.what.precision == PRECISE
        assert isinstance(blurred.what, HandheldPosition)
        assert blurred.what.precision < PRECISE
        assert (ben.what, far.handle) == (HandheldName("BEN-1", b""), "ben-1")
        assert far.over_internet
        assert not tnc.sent

    run_in_virtual_time(work)


@pytest.mark.parametrize(
    "info", ["!0000.00N/00000.00E[ no fix yet", "!0000.00S/00000.00W>", "!0000.  N/00000.  E>"]
)
def test_beacon_at_zero_coordinates_is_no_position(info: str) -> None:
    """A tracker sends this beacon before its receiver has a fix. The station is present in any
    case.
    """

    async def work() -> None:
        tnc = Tnc()
        async with aprs_at(tnc) as people:
            tnc.hear(make_frame(ADA, info))
            heard = await receive_all(people)
        assert {each.handle for each in heard} == {ADA.lower()}
        assert [each for each in heard if isinstance(each.what, HandheldPosition)] == []

    run_in_virtual_time(work)


def test_mic_e_emergency_is_one_sos_with_a_position() -> None:
    async def work() -> None:
        tnc = Tnc()
        async with aprs_at(tnc) as people:
            beacon = make_frame(ADA, '`(_fn"Oj/', to="432105")
            tnc.hear(beacon, beacon)
            heard = (await receive_all(people))[1:]
            tnc.hear(beacon)
            heard += await receive_all(people)
        alerts = [each for each in heard if isinstance(each.what, HandheldText)]
        assert isinstance(heard[0].what, HandheldPosition)
        assert [each.what for each in alerts] == [
            HandheldText("Mic-E emergency", True, alert=True)
        ] * 2
        assert alerts[0].number == alerts[1].number, "a beacon that goes on is one call for help"
        assert tnc.frames == {"taken": 2, "copies": 1}

    run_in_virtual_time(work)


def test_message_is_acknowledged_once_stored_and_at_each_repeat() -> None:
    async def work() -> None:
        tnc = Tnc()
        async with aprs_at(tnc) as people:
            tnc.hear(make_frame(ADA, make_message_to_kit("Camp reached{12")))
            await people.receive()
            spoken = await people.receive()
            assert spoken.what == HandheldText("Camp reached", True)
            tnc.hear(make_frame(ADA, make_message_to_kit("Camp reached{12")))
            await trio.sleep(60)
            assert not tnc.sent, "it is not on disk yet"
            assert not await receive_all(people)
            assert tnc.said == [f":{ADA.ljust(9)}:ack12"]
            tnc.hear(make_frame(ADA, make_message_to_kit("Camp reached{12")))
            assert not await receive_all(people)
            assert tnc.said == [f":{ADA.ljust(9)}:ack12"] * 2
            tnc.hear(make_frame(ADA, make_message_to_kit("Another{12")))
            assert [each.what for each in await receive_all(people)] == [
                HandheldText("Another", True)
            ]
            await trio.sleep(1800)
            tnc.hear(make_frame(ADA, make_message_to_kit("Camp reached{12")))
            (again,) = await receive_all(people)
            assert again.number != spoken.number

    run_in_virtual_time(work)


def test_repeated_message_keeps_its_number_after_a_restart() -> None:
    async def work() -> None:
        numbers = set()
        for _ in range(2):
            tnc = Tnc()
            async with aprs_at(tnc) as people:
                tnc.hear(make_frame(ADA, make_message_to_kit("Camp reached{12")))
                await people.receive()
                numbers.add((await people.receive()).number)
        assert len(numbers) == 1

    run_in_virtual_time(work)


def test_full_disk_rejects_a_message_and_accepts_its_repeat() -> None:
    async def work() -> None:
        tnc = Tnc()
        async with aprs_at(tnc) as people:
            tnc.hear(make_frame(ADA, make_message_to_kit("Camp reached{12")))
            await people.receive()
            heard = await people.receive()
            await people.refuse(heard, FULL_DISK_REPLY)
            assert not await receive_all(people)
            assert tnc.said == [f":{ADA.ljust(9)}:rej12"]
            tnc.hear(make_frame(ADA, make_message_to_kit("Camp reached{12")))
            assert len(await receive_all(people)) == 1
            assert tnc.said[1:] == [f":{ADA.ljust(9)}:ack12"]

    run_in_virtual_time(work)


def test_messages_for_other_stations_are_ignored() -> None:
    async def work() -> None:
        tnc = Tnc()
        async with aprs_at(tnc) as people:
            tnc.hear(
                make_frame(ADA, ":HB9ABC-8 :Not yours{1"),
                make_frame(KIT, make_message_to_kit("my own{2"), "HB9GW"),
            )
            tnc.hear(
                make_frame(
                    "HB9GW", f"}}{ADA}>APRS,TCPIP,HB9GW*:{make_message_to_kit('from afar{3')}"
                )
            )
            tnc.hear(
                make_frame(ADA, ":BLN1     :Snow"), make_frame(ADA, ":BLN1     :Snow", "HB9GW")
            )
            _, other, far, bulletin = await receive_all(people)
        assert other.what is None
        assert far.over_internet
        assert bulletin.what == HandheldText("Snow", False, "BLN1")
        assert not tnc.sent

    run_in_virtual_time(work)


@pytest.mark.parametrize(
    ("answer", "outcome", "times"),
    [
        ("ack", TextOutcome(True, ""), 1),
        ("rej", TextOutcome(False, "its station rejects it"), 1),
        ("", TextOutcome(False, "no acknowledgement"), 2),
    ],
)
def test_text_to_a_station_is_sent_until_acknowledged(
    answer: str, outcome: TextOutcome, times: int
) -> None:
    async def work() -> None:
        tnc = Tnc()
        if answer:
            tnc.answer = lambda info: make_frame(
                ADA, make_message_to_kit(answer + info.rpartition("{")[2])
            )
        async with aprs_at(tnc) as people:
            result = await people.send_text(
                ADA.lower(), "Come | now {please}", people.make_number()
            )
        assert result == outcome
        assert len(tnc.said) == times
        assert tnc.said[0].startswith(f":{ADA.ljust(9)}:Come / now (please}}{{")

    run_in_virtual_time(work)


def test_acknowledgement_of_another_station_is_ignored() -> None:
    async def work() -> None:
        tnc = Tnc()
        tnc.answer = lambda info: make_frame(
            "N0CALL-8", make_message_to_kit("ack" + info.rpartition("{")[2])
        )
        async with aprs_at(tnc) as people:
            assert not (
                await people.send_text(ADA.lower(), "Come", people.make_number())
            ).is_confirmed

    run_in_virtual_time(work)


def test_kit_without_a_call_sign_sends_nothing() -> None:
    async def work() -> None:
        tnc = Tnc()
        async with aprs_at(tnc, "") as people:
            tnc.hear(make_frame(ADA, make_message_to_kit("Camp reached{12")))
            assert not any(
                isinstance(each.what, HandheldText) for each in await receive_all(people)
            )
            outcome = await people.send_text(ADA.lower(), "Come", people.make_number())
        assert outcome == TextOutcome(False, f"this kit's APRS {LISTENS_ONLY}")
        assert not tnc.sent

    run_in_virtual_time(work)


def test_long_reaction_is_truncated_at_a_whole_character() -> None:
    async def work() -> None:
        tnc = Tnc()
        async with aprs_at(tnc) as people:
            assert (await people.react(ADA.lower(), 1, "📥", "on the kit's disk")).is_confirmed
            assert not tnc.sent, "the acknowledgement has said it"
            await people.react(ADA.lower(), 1, "🛰", "ж" * 60)
        text = tnc.said[0][11:].rpartition("{")[0]
        assert len(text.encode()) <= people.text_bytes
        assert text.startswith("🛰 жж")

    run_in_virtual_time(work)


def test_random_frames_do_not_stop_the_receiver() -> None:
    async def work() -> None:
        random, tnc = Random(1), Tnc()
        head = ax25.encode(ax25.Frame(ax25.Callsign("N0CALL"), ax25.Callsign("S32U6T"), b""))
        async with aprs_at(tnc) as people:
            for _ in range(20_000):
                start = random.choice((b"", head)) + random.choice((b"", b"!", b"`", b":", b"}"))
                tnc.hear(kiss.encode(start + random.randbytes(random.randrange(40))))
            tnc.hear(random.randbytes(500))
            await receive_all(people)
            tnc.hear(b"\xc0", make_frame(ADA, PLACE))
            assert isinstance((await receive_all(people))[-1].what, HandheldPosition)

    run_in_virtual_time(work)


def test_tnc_lost_in_the_middle_of_a_frame_is_reported() -> None:
    async def tnc(stream: trio.SocketStream) -> None:
        await stream.send_all(make_frame(ADA, PLACE) + make_frame(ADA, PLACE)[:9])
        await stream.aclose()

    async def work() -> None:
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, tnc, [listener])
            port = listener.socket.getsockname()[1]
            place, link, heard = HandheldPlace(f"tcp://127.0.0.1:{port}", KIT), ChannelLink(), []
            with trio.fail_after(PATIENCE), pytest.raises(BaseExceptionGroup) as raised:
                async with open_aprs(place, link, lambda: NOW) as people:
                    while True:
                        heard.append(await people.receive())
            assert isinstance(get_first_error(raised.value), PortLost)
            assert link.facts["node"] == KIT
            assert [type(each.what) for each in heard] in (
                [],
                [HandheldName],
                [HandheldName, HandheldPosition],
            )
            nursery.cancel_scope.cancel()

    trio.run(work)


def test_call_signs_are_recognised_as_handles() -> None:
    assert is_handle("n0call-9")
    assert not is_handle("!a1b2c3d4")
    assert not is_handle("a1" * 32)
    assert not meshcore.is_handle("n0call-9")


def test_unlisted_station_is_dropped_and_counted() -> None:
    async def work() -> None:
        tnc = Tnc()
        async with aprs_at(tnc, KIT, "n0call-8") as people:
            tnc.hear(
                make_frame("N0CALL-8", PLACE), make_frame("N0CALL-8", make_message_to_kit("SOS{1"))
            )
            tnc.hear(make_frame("HB9GW", f"}}N0CALL-8>APRS,TCPIP,HB9GW*:{PLACE}"))
            tnc.hear(make_frame("N0CALL-8", '`(_fn"Oj/', to="432105"), make_frame(ADA, PLACE))
            assert {each.handle for each in await receive_all(people)} == {ADA.lower()}
        assert tnc.frames == {"unlisted": 4, "taken": 1}
        assert not tnc.sent

    run_in_virtual_time(work)


def test_digipeated_copy_is_counted_once() -> None:
    async def work() -> None:
        tnc = Tnc()
        async with aprs_at(tnc) as people:
            tnc.hear(
                make_frame(ADA, PLACE),
                make_frame(ADA, PLACE, "HB9GW"),
                make_frame(ADA, PLACE, "WIDE2-1"),
            )
            message = make_frame(ADA, make_message_to_kit("Camp reached{12"))
            tnc.hear(message, make_frame(ADA, make_message_to_kit("Camp reached{12"), "HB9GW"))
            assert len(await receive_all(people)) == 3
        assert tnc.frames == {"taken": 2, "copies": 3}
        assert tnc.said == [f":{ADA.ljust(9)}:ack12"]

    run_in_virtual_time(work)


@pytest.mark.full
def test_busy_channel_is_limited_to_a_frame_per_second_except_for_messages() -> None:
    async def work() -> None:
        tnc = Tnc()
        async with aprs_at(tnc) as people:
            heard: list[HandheldReport] = []

            async def listen() -> None:
                while True:
                    heard.append(await people.receive())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen)
                for number in range(600):
                    call, minutes = f"N{number % 300}CA", f"{number % 60:02}"
                    tnc.hear(make_frame(call, f"!47{minutes}.61N/008{number // 60:02}.50E>"))
                    await trio.sleep(0.1)
                tnc.hear(make_frame(ADA, make_message_to_kit("Camp reached{12")))
                await trio.sleep(10)
                nursery.cancel_scope.cancel()
        places = [each for each in heard if isinstance(each.what, HandheldPosition)]
        assert len(places) == tnc.frames["taken"] - 1 <= 121
        assert tnc.frames["limited"] == 600 - len(places)
        assert tnc.said == [f":{ADA.ljust(9)}:ack12"]

    run_in_virtual_time(work)


def test_object_is_a_marker_and_not_its_senders_position() -> None:
    async def work() -> None:
        tnc = Tnc()
        async with aprs_at(tnc) as people:
            tnc.hear(make_frame(ADA, ";CREVASSE *092345z4722.61N/00832.50E!mind it"))
            tnc.hear(make_frame(ADA, ")HUT!4722.61N/00832.50E-"))
            marks = (await receive_all(people))[1:]
            tnc.hear(make_frame(ADA, ";CREVASSE *100045z4722.61N/00832.50E!mind it"))
            tnc.hear(make_frame(ADA, ";CREVASSE _100050z4722.61N/00832.50E!mind it"))
            again, killed = await receive_all(people)
        crevasse, hut = marks
        assert isinstance(crevasse.what, HandheldMarker) and isinstance(hut.what, HandheldMarker)
        assert (crevasse.what.name, crevasse.what.notes) == ("CREVASSE", "mind it")
        assert (hut.what.name, round(hut.what.latitude, 4)) == ("HUT", 47.3768)
        assert again.number == crevasse.number != hut.number
        assert killed.what is None

    run_in_virtual_time(work)


def test_timestamped_position_keeps_its_age() -> None:
    async def work() -> None:
        tnc = Tnc()
        async with aprs_at(tnc) as people:
            now = datetime.fromtimestamp(NOW, UTC)
            before = now - timedelta(hours=3)
            tnc.hear(make_frame(ADA, f"@{before:%d%H%M}z{PLACE[1:]}"))
            (_, heard) = await receive_all(people)
        assert isinstance(heard.what, HandheldPosition)
        assert heard.what.where.timestamp == before.replace(second=0, microsecond=0)

    run_in_virtual_time(work)
