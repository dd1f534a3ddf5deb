"""The driver with a simulated modem at the other end of a real pty, in virtual time.

The tests count at the operator's gateway and in the answers to the caller.
"""

from __future__ import annotations

import os
import random
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.channels import satellite, satellite_waits, sbd_modem
from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.agent.channels.line_speed import LineSpeed
from fieldagent.agent.journal import inbound
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.satellites.sbd import SBD
from fieldagent.extensions.lab.simulator import sbd_commands
from fieldagent.extensions.lab.simulator.base_camp import BaseCamp
from fieldagent.extensions.lab.simulator.gateway import SimulatedGateway
from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.extensions.lab.simulator.pty_port import PtyPort
from fieldagent.extensions.lab.simulator.sbd_commands import AtAnswer
from fieldagent.extensions.lab.simulator.sbd_modem import SimulatedModem
from fieldagent.extensions.lab.simulator.sbd_state import PlannedStatus, VolatileState
from fieldagent.package.package import Data, Message, Status
from fieldagent.store.group import StoreFailed
from fieldagent.system.supervisor import Supervisor
from fieldagent.wire.envelope import Entry, Report, compute_fragments_digest
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.sbd import MO_STATUS, ModemReply, SessionVerdict, parse_session
from tests.agent.channels.contract import Checked
from tests.kit import RATES, Kit, fail_after, kit, outcome, until


@pytest.fixture(params=RATES)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock:
    """Both ends of the pty run in this process, so real waits are short."""
    return trio.testing.MockClock(request.param, autojump_threshold=0)


@dataclass
class Sky:
    """Modem, gateway and serial line, which outlive a single run of the agent."""

    path: Path
    latency: float = 5.0

    def __post_init__(self) -> None:
        self.queue = MtQueue()
        self.home = BaseCamp(lambda line: None, self.queue)
        self.gateway = SimulatedGateway(lambda line: None, self.queue, self.home)
        self.modem = SimulatedModem(self.gateway)
        self.port = PtyPort(self.modem, self.path / "modem", latency=self.latency)

    @property
    def contents(self) -> list[object]:
        return [getattr(item, "content", item) for item in self.home.received]


@asynccontextmanager
async def agent(
    sky: Sky,
    *,
    pace: satellite.Pace | None = None,
    supervisor: Supervisor | None = None,
    **how: Any,
) -> AsyncIterator[Kit]:
    """Run the agent's core with the real driver. At the end of the block its power fails.

    Without a supervisor, a failing driver ends the test.
    """
    known = pace or satellite.Pace(random.Random(1))
    async with kit(sky.path, **how) as k, trio.open_nursery() as nursery:

        async def drive() -> None:
            await satellite.run(
                str(sky.path / "modem"),
                Checked(k.outbox, in_flight=1),
                k.reception,
                k.outbox.link,
                known,
                speed=LineSpeed(19_200, SBD),
            )

        if supervisor is None:
            nursery.start_soon(drive)
        else:
            keep = partial(supervisor.keep_running, "driver", drive, mend=k.outbox.requeue_lost)
            nursery.start_soon(keep)
        yield k
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def field_kit(path: Path, **how: Any) -> AsyncIterator[tuple[Sky, Kit]]:
    sky = Sky(path)
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with agent(sky, **how) as k:
            yield sky, k
        nursery.cancel_scope.cancel()


async def test_package_is_delivered_through_serial_modem(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        assert await outcome(k, await k.post()) is Status.DELIVERED
        assert sky.contents == ["hello"]
        assert k.outbox.link.state in (LinkState.READY, LinkState.BUSY)
        assert k.outbox.link.facts["imei"] == sky.modem.state.imei
        assert k.outbox.link.signal == 4
        assert sky.modem.state.volatile.session_timeout == sbd_modem.MODEM_SESSION_TIMEOUT_S
        await until(lambda: not sky.modem.state.volatile.mo_flag)


async def test_sent_package_is_not_sent_and_billed_again(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        for number in range(3):
            await outcome(k, await k.post(message={"content": str(number)}))
            await trio.sleep(300)
        assert sky.gateway.sessions == 3
        assert sky.contents == ["0", "1", "2"]


async def test_large_data_is_fragmented_and_reassembled(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        assert await outcome(k, await k.post(data={"payload": "QUJD" * 400})) is Status.DELIVERED
        assert sky.home.received == [Data(b"ABC" * 400)]
        assert sky.gateway.sessions == 4


async def test_only_fragments_lost_after_gateway_are_repeated(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.home.lose_fragments = 2
        await outcome(k, await k.post(data={"payload": "QUJD" * 400}))
        await until(lambda: sky.home.received)
        assert sky.home.received == [Data(b"ABC" * 400)]
        assert sky.gateway.sessions == 4 + 2


@pytest.mark.parametrize("number", range(66))
async def test_package_ends_correctly_after_each_mo_status(
    tmp_path: Path, clock: Any, number: int
) -> None:
    """One session has this status, and then the sky is clear. The Package is never lost and never
    doubled, unless it is refused.
    """
    verdict = MO_STATUS[number].verdict if number in MO_STATUS else SessionVerdict.NOT_SENT
    sent = verdict is SessionVerdict.SENT
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.statuses.append(PlannedStatus(number, delivered=sent, counted=sent))
        id_ = await k.post()
        status = await outcome(k, id_, within=3600)
        if verdict is SessionVerdict.REFUSED:
            assert status is Status.ERROR
            assert k.reason(id_) == MO_STATUS[number].description
            assert sky.contents == []
        else:
            assert status is Status.DELIVERED
            assert sky.contents == ["hello"]
            assert sky.gateway.sessions == 1


def one_bit_off(number: int) -> set[int]:
    """Return the statuses that a flipped bit on the serial line can make of this one. If the result
    is not a status, the driver treats the reply as lost.
    """
    read = set()
    text = str(number).encode()
    for place, bit in product(range(len(text)), range(8)):
        flipped = bytearray(text)
        flipped[place] ^= 1 << bit
        line = f"+SBDIX: {flipped.decode('latin-1')}, 5, 0, 0, 0, 0"
        with suppress(RemoteProtocolError):
            read.add(parse_session(ModemReply(True, (line,))).mo_status)
    return read


NUMBERS = sorted({*range(66)}.union(*map(one_bit_off, range(66))))


def test_flipped_bit_turns_mo_status_into_another() -> None:
    assert {12, 33, 36} <= one_bit_off(32) and 14 in one_bit_off(10)


@pytest.mark.parametrize(
    ("number", "left"),
    [
        pytest.param(
            number,
            left,
            id=f"{number}, {'had left' if left else 'had not left'}",
            marks=() if number < 66 and not left else pytest.mark.full,
        )
        for number in NUMBERS
        for left in (False, True)
    ],
)
async def test_sos_is_delivered_once_after_any_mo_status(
    tmp_path: Path, clock: Any, number: int, left: bool
) -> None:
    """The SOS arrives once within a minute, or within the three minutes that the network requires,
    whatever the modem reports and whatever is true.
    """
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.statuses.append(PlannedStatus(number, delivered=left, counted=left))
        id_ = await k.post(message={"content": "help"}, priority=100)
        await until(lambda: not sky.modem.faults.statuses and not sky.modem.session)
        within = 220 if number == 36 else 60 + 2 * sky.latency
        assert await outcome(k, id_, within) is Status.DELIVERED
        assert sky.contents == ["help"]
        assert sky.gateway.sessions == 1


@pytest.mark.parametrize("number", [10, 13, 17, 18, 19, 32])
async def test_sent_message_is_recognised_by_momsn_after_failure_status(
    tmp_path: Path, clock: Any, number: int
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.statuses.append(PlannedStatus(number, delivered=True, counted=True))
        assert await outcome(k, await k.post()) is Status.DELIVERED
        await trio.sleep(400)
        assert sky.gateway.sessions == 1


@pytest.mark.parametrize("number", [10, 18, 32])
async def test_message_repeated_after_unmoved_momsn_arrives_once(
    tmp_path: Path, clock: Any, number: int
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.statuses.append(PlannedStatus(number, delivered=True, counted=False))
        assert await outcome(k, await k.post()) is Status.DELIVERED
        assert sky.gateway.sessions == 2
        assert sky.contents == ["hello"]


async def test_momsn_of_sos_does_not_confirm_doubtful_message(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.statuses.append(PlannedStatus(18, delivered=True, counted=False))
        first = await k.post()
        await until(lambda: sky.gateway.sessions == 1)
        await k.post(message={"content": "help"}, priority=100)
        await until(lambda: sky.gateway.sessions == 3)
        assert sky.contents == ["hello", "help"]
        assert k.status(first) is Status.DELIVERED


@pytest.mark.parametrize(("delivered", "sessions"), [(True, 1), (False, 1)])
async def test_lost_session_reply_causes_no_second_session(
    tmp_path: Path, clock: Any, delivered: bool, sessions: int
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.lose_replies = 1
        number = 0 if delivered else 32
        sky.modem.faults.statuses.append(
            PlannedStatus(number, delivered=delivered, counted=delivered)
        )
        assert await outcome(k, await k.post()) is Status.DELIVERED
        assert sky.gateway.sessions == sessions
        assert sky.contents == ["hello"]


@pytest.mark.parametrize("fault", ["reply lost", "brown-out"])
async def test_session_without_reply_delays_sos_less_than_minute(
    tmp_path: Path, clock: Any, fault: str
) -> None:
    """The clock is virtual. After the wait, the MOMSN decides, and nothing is sent twice."""
    async with field_kit(tmp_path) as (sky, k):
        if fault == "reply lost":
            sky.modem.faults.lose_replies = 1
        began, id_ = trio.current_time(), await k.post(priority=100)
        await until(lambda: sky.modem.session)
        if fault == "brown-out":
            sky.modem.start_brown_out()
            await until(lambda: sky.modem.session)
        else:
            await outcome(k, id_)
        assert trio.current_time() - began < 60
        assert await outcome(k, id_) is Status.DELIVERED
        assert (sky.gateway.sessions, sky.contents) == (1, ["hello"])


@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize("fault", ["", "reply lost", "brown-out"])
@pytest.mark.parametrize(("seconds", "after"), [(5, 0), (5, 4), (5, 20), (58, 0), (58, 20)])
async def test_ordinary_session_without_reply_delays_sos_less_than_minute(
    tmp_path: Path, clock: Any, seconds: float, after: float, fault: str, delivered: bool
) -> None:
    """The SOS is raised during a session of `seconds`, `after` seconds after its start."""
    async with field_kit(tmp_path) as (sky, k):
        sky.port.latency = seconds
        if fault == "reply lost":
            sky.modem.faults.lose_replies = 1
        if not delivered:
            sky.modem.faults.statuses.append(PlannedStatus(32, delivered=False, counted=False))
        await k.post(message={"content": "ordinary"})
        await until(lambda: sky.modem.session)
        await trio.sleep(after)
        id_ = await k.post(message={"content": "help"}, priority=100)
        if fault == "brown-out":
            sky.modem.start_brown_out()
        sky.port.latency = 5.0
        assert await outcome(k, id_, 60 + 2 * sky.latency) is Status.DELIVERED
        assert sky.contents.count("help") == 1 and sky.contents.count("ordinary") <= 1


@pytest.mark.parametrize("reached", [True, False])
async def test_package_is_sent_once_despite_power_cut_during_session(
    tmp_path: Path, clock: Any, reached: bool
) -> None:
    sky = Sky(tmp_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with agent(sky) as k:
            id_ = await k.post()
            await until(lambda: sky.modem.session)
        if reached:
            sky.modem.finish_session()
        else:
            sky.modem.start_brown_out()
        async with agent(sky) as k:
            assert await outcome(k, id_) is Status.DELIVERED
        assert sky.gateway.sessions == 1
        assert sky.contents == ["hello"]
        nursery.cancel_scope.cancel()


async def test_package_arrives_once_over_replaced_modem_after_power_cut(
    tmp_path: Path, clock: Any
) -> None:
    sky = Sky(tmp_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with agent(sky) as k:
            id_ = await k.post()
            await until(lambda: sky.modem.session)
        sky.modem.finish_session()
        sky.modem.state.imei, sky.modem.state.momsn = "300234010999999", 77
        async with agent(sky) as k:
            assert await outcome(k, id_) is Status.DELIVERED
        assert sky.gateway.sessions == 2
        assert sky.contents == ["hello"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("lost", ["port", "driver"])
async def test_pause_after_failures_survives_loss_of_port_and_driver(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """The next driver must not start again with sessions that cannot succeed."""
    pace, supervisor = satellite.Pace(random.Random(1)), supervised()
    async with field_kit(tmp_path, pace=pace, supervisor=supervisor) as (sky, k):
        doubtful = PlannedStatus(18, delivered=False, counted=False)
        sky.modem.faults.statuses.extend([doubtful] * 6)
        id_ = await k.post()
        await until(lambda: pace.rest.failures == 6)
        rests_until = pace.rest.until
        assert rests_until - trio.current_time() > 200
        if lost == "port":
            sky.port.unplug()
            await trio.sleep(10)
            sky.port.plug()
        else:
            with monkeypatch.context() as broken:
                broken.setattr(sbd_modem.Modem, "_dispatch_event", fails)
                sky.modem.set_signal(3)
                sky.port.poke()
                await until(lambda: supervisor.count_faults()["driver"] > 0)
        assert await outcome(k, id_) is Status.DELIVERED
        assert trio.current_time() >= rests_until
        assert sky.contents == ["hello"]
        assert sky.gateway.sessions == 1


def supervised() -> Supervisor:
    return Supervisor(fatal=(StoreFailed,), clock=trio.current_time)


def fails(*_: Any) -> None:
    raise ValueError("as a test")


async def test_loaded_package_is_sent_after_driver_failure(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver fails before the intent is written. Meanwhile the Package was canceled, or
    expired, or neither.
    """
    supervisor = supervised()
    async with field_kit(tmp_path, supervisor=supervisor) as (sky, k):
        with monkeypatch.context() as broken:
            broken.setattr(satellite.SatelliteDriver, "_write_message", fails)
            stays = await k.post(message={"content": "stays"})
            await k.post(message={"content": "too late"}, timeToLive=1)
            goes = await k.post(message={"content": "is canceled"}, id=77)
            await until(lambda: supervisor.count_faults()["driver"] > 2)
        assert (await k.cancellation.cancel(77)).status is Status.CANCELED
        assert await outcome(k, stays) is Status.DELIVERED
        assert k.status(goes) is Status.CANCELED
        assert sky.contents == ["stays"]
        assert len(k.outbox) == 0
        assert any("driver failed" in line.detail for line in k.history(stays))


async def test_package_waits_for_modem_that_is_absent_at_start(tmp_path: Path, clock: Any) -> None:
    sky = Sky(tmp_path)
    async with agent(sky) as k:
        id_ = await k.post()
        await trio.sleep(120)
        assert k.outbox.link.state is LinkState.ABSENT
        assert "No such file" in k.outbox.link.reason
        async with trio.open_nursery() as nursery:
            await nursery.start(sky.port.run)
            assert await outcome(k, id_) is Status.DELIVERED
            nursery.cancel_scope.cancel()


async def test_package_is_sent_after_modem_is_plugged_in_again(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await outcome(k, await k.post(message={"content": "before"}))
        sky.port.unplug()
        await until(lambda: k.outbox.link.state is LinkState.ABSENT)
        id_ = await k.post(message={"content": "after"})
        await trio.sleep(100)
        sky.port.plug()
        assert await outcome(k, id_) is Status.DELIVERED
        assert sky.contents == ["before", "after"]


async def test_unplugging_during_session_sends_package_once(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        id_ = await k.post()
        await until(lambda: sky.modem.session)
        sky.port.unplug()
        await trio.sleep(30)
        sky.port.plug()
        assert await outcome(k, id_) is Status.DELIVERED
        assert sky.gateway.sessions == 1


async def test_brown_out_during_session_sends_package_once(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        id_ = await k.post()
        await until(lambda: sky.modem.session)
        sky.modem.start_brown_out()
        assert await outcome(k, id_) is Status.DELIVERED
        assert sky.gateway.sessions == 1
        assert sky.modem.state.volatile.session_timeout == sbd_modem.MODEM_SESSION_TIMEOUT_S


async def test_idle_modem_is_configured_again_after_brown_out(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await outcome(k, await k.post())
        sky.modem.start_brown_out()
        await trio.sleep(3 * satellite_waits.CHECK_INTERVAL_S)
        assert sky.modem.state.volatile.indications
        assert not sky.modem.state.volatile.echo


async def test_settings_are_restored_after_unnoticed_modem_reset(
    tmp_path: Path, clock: Any
) -> None:
    """The modem's stored settings have no echo, so only the lost settings show the reset."""
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.state.stored = VolatileState(
            echo=False, flow_control=False, ring_indications=False, session_timeout=60
        )
        await outcome(k, await k.post())
        sky.modem.set_service(False)
        sky.port.poke()
        await until(lambda: k.outbox.link.state is LinkState.NO_SERVICE)
        sky.modem.start_brown_out()
        sky.modem.set_service(True)
        began = trio.current_time()
        assert await outcome(k, await k.post(message={"content": "x"})) is Status.DELIVERED
        assert trio.current_time() - began < 60
        volatile = sky.modem.state.volatile
        assert volatile.indications and volatile.ring_indications and volatile.registration
        assert k.outbox.link.state is LinkState.READY


@pytest.mark.parametrize("untold", ["+CIER?", "+SBDMTA?", "+SBDAREG?"])
async def test_unreadable_modem_settings_are_written_before_each_session(
    tmp_path: Path, clock: Any, untold: str
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.unknown_commands = frozenset({untold})
        sky.modem.state.stored = VolatileState(
            echo=False, flow_control=False, ring_indications=False
        )
        await outcome(k, await k.post())
        sky.modem.start_brown_out()
        assert await outcome(k, await k.post(message={"content": "x"})) is Status.DELIVERED
        volatile = sky.modem.state.volatile
        assert volatile.indications and volatile.ring_indications and volatile.registration


async def test_lost_settings_of_idle_modem_are_restored(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.state.stored = VolatileState(echo=False, ring_indications=False)
        await outcome(k, await k.post())
        sky.modem.start_brown_out()
        await trio.sleep(
            (satellite.CHECKS_PER_SETTINGS_RESTORE + 1) * satellite_waits.CHECK_INTERVAL_S
        )
        assert sky.modem.state.volatile.ring_indications
        assert sky.modem.state.volatile.registration


async def test_successful_session_overrides_no_service_indicator(
    tmp_path: Path, clock: Any
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await outcome(k, await k.post())
        sky.modem.set_service(False)
        sky.port.poke()
        await until(lambda: k.outbox.link.state is LinkState.NO_SERVICE)
        sky.modem.state.service = True  # The indicator still reports no service.
        assert await outcome(k, await k.post(message={"content": "1"})) is Status.DELIVERED
        began = trio.current_time()
        assert await outcome(k, await k.post(message={"content": "2"})) is Status.DELIVERED
        assert trio.current_time() - began < 60


@pytest.mark.parametrize("number", [35, 38])
@pytest.mark.parametrize(
    ("priority", "soonest", "latest"), [(10, 600, 700), (100, 30, 80)], ids=["ordinary", "SOS"]
)
async def test_traffic_management_delays_next_session_less_for_sos(
    tmp_path: Path, clock: Any, number: int, priority: int, soonest: float, latest: float
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.traffic = 600
        sky.modem.faults.statuses.extend(failing(number, 1))
        began = trio.current_time()
        id_ = await k.post(message={"content": "x"}, priority=priority)
        assert await outcome(k, id_) is Status.DELIVERED
        assert soonest <= trio.current_time() - began < latest


async def test_hanging_modem_is_absent_until_modem_answers(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await outcome(k, await k.post())
        sky.modem.faults.deaf = True
        id_ = await k.post(message={"content": "x"})
        await until(lambda: k.outbox.link.state is LinkState.ABSENT)
        sky.modem.faults.deaf = False
        assert await outcome(k, id_) is Status.DELIVERED


@pytest.mark.parametrize(
    "quirk",
    [
        {"stubborn_echo": True},
        {"odd_spacing": True},
        {"unknown_commands": frozenset({"+CIER", "+SBDMTA", "+SBDST", "+CGMR"})},
        {"unknown_commands": frozenset({"?", "+SBDLOE", "+SBDAREG"})},
        {"unknown_commands": frozenset({"+CGSN", "+SBDSX", "+SBDIXA", "-MSSTM"})},
    ],
    ids=lambda quirk: next(iter(quirk)),
)
async def test_modem_with_quirk_sends_and_receives(
    tmp_path: Path, clock: Any, quirk: dict[str, Any]
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        for name, value in quirk.items():
            setattr(sky.modem.faults, name, value)
        sky.home.send(Message("to the kit"))
        assert await outcome(k, await k.post()) is Status.DELIVERED
        await until(lambda: inbound.list_payloads(k.journal, 9))


async def test_sos_is_tried_within_minute_without_network(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await outcome(k, await k.post())
        sky.modem.set_service(False)
        sky.port.poke()
        await until(lambda: k.outbox.link.state is LinkState.NO_SERVICE)
        began = trio.current_time()
        sky.modem.state.service = True  # The indicator still reports no service.
        sos = await k.post(message={"content": "help"}, priority=100)
        await outcome(k, sos)
        assert trio.current_time() - began < 60


def failing(number: int, times: int) -> list[PlannedStatus]:
    return [PlannedStatus(number, delivered=False, counted=False)] * times


@pytest.mark.parametrize(
    ("number", "times", "soonest", "latest"),
    [(32, 5, 0, 90), (33, 1, 0, 90), (36, 1, 170, 220)],
    ids=["no network, a minute", "antenna fault, a minute", "network wait, three minutes"],
)
async def test_sos_waits_only_as_long_as_manual_requires(
    tmp_path: Path, clock: Any, number: int, times: int, soonest: float, latest: float
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.statuses.extend(failing(number, times))
        await k.post()
        await until(lambda: not sky.modem.faults.statuses and not sky.modem.session)
        began = trio.current_time()
        await outcome(k, await k.post(message={"content": "help"}, priority=100))
        assert soonest <= trio.current_time() - began < latest
        assert sky.contents[0] == "help"


@pytest.mark.full
@pytest.mark.parametrize("number", sorted(MO_STATUS))
async def test_no_mo_status_delays_sos_more_than_minute(
    tmp_path: Path, clock: Any, number: int
) -> None:
    """Status 36 is the exception: the network then requires three minutes, after any earlier
    failures.
    """
    if MO_STATUS[number].verdict is SessionVerdict.SENT:
        return
    async with field_kit(tmp_path) as (sky, k):
        if MO_STATUS[number].verdict is not SessionVerdict.REFUSED:
            await k.post(timeToLive=86_400)
            sky.modem.faults.statuses.extend(failing(number, 7))
            await until(lambda: len(sky.modem.faults.statuses) == 1, 3 * 3600)
            await until(lambda: not sky.modem.session)
        sky.modem.faults.statuses.clear()
        sky.modem.faults.statuses.extend(failing(number, 1))
        await k.post(message={"content": "help"}, priority=100)
        await until(lambda: not sky.modem.faults.statuses and not sky.modem.session)
        began = trio.current_time()
        await until(lambda: "help" in sky.contents)
        assert trio.current_time() - began < (220 if number == 36 else 60 + 2 * sky.latency)


@pytest.mark.full
@pytest.mark.parametrize("asked", [False, True], ids=["service returns", "user requests"])
async def test_pauses_end_on_service_or_request_except_network_wait(
    tmp_path: Path, clock: Any, asked: bool
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        for number in (11, 15, 16, 32, 36):
            sky.modem.faults.statuses.extend(failing(number, 1 if number == 36 else 6))
            id_ = await k.post(message={"content": str(number)}, timeToLive=86_400)
            await until(lambda: not sky.modem.faults.statuses and not sky.modem.session, 2 * 3600)
            began = trio.current_time()
            if asked:
                k.outbox.link.request_attempt()
            for service in () if asked else (False, True):
                sky.modem.set_service(service)
                sky.port.poke()
                await trio.sleep(1)
            assert await outcome(k, id_) is Status.DELIVERED
            passed = trio.current_time() - began
            assert passed >= 170 if number == 36 else passed < 30, number


async def test_new_package_does_not_shorten_pause_of_link(tmp_path: Path, clock: Any) -> None:
    """A new Package starts no extra session, and waiting items fill the remaining space."""
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.statuses.extend(failing(36, 1))
        await k.post(message={"content": "0"})
        await until(lambda: not sky.modem.faults.statuses and not sky.modem.session)
        began = trio.current_time()
        for number in range(1, 6):
            await k.post(message={"content": str(number)})
            await trio.sleep(10)
        await until(lambda: len(sky.contents) == 6)
        assert sky.contents == [str(number) for number in range(6)]
        assert sky.gateway.sessions == 1
        assert trio.current_time() - began >= 170


@pytest.mark.full
@pytest.mark.parametrize(("number", "times"), [(32, 8), (33, 1)])
async def test_returning_network_ends_pause(
    tmp_path: Path, clock: Any, number: int, times: int
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.set_service(False)
        sky.modem.faults.statuses.extend(failing(number, times))
        id_ = await k.post()
        await until(lambda: not sky.modem.faults.statuses and not sky.modem.session, 3600)
        await trio.sleep(1)
        sky.modem.set_service(True)
        sky.port.poke()
        began = trio.current_time()
        assert await outcome(k, id_) is Status.DELIVERED
        assert trio.current_time() - began < 90


async def test_returning_network_does_not_shorten_network_wait(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.statuses.extend(failing(36, 1))
        id_ = await k.post()
        await until(lambda: not sky.modem.faults.statuses and not sky.modem.session)
        began = trio.current_time()
        for service in (False, True):
            sky.modem.set_service(service)
            sky.port.poke()
            await trio.sleep(5)
        assert await outcome(k, id_) is Status.DELIVERED
        assert trio.current_time() - began >= 170


@pytest.mark.full
@pytest.mark.parametrize(
    ("mo_status", "most"), [(0, 8), (1, 3)], ids=["gateway error", "message too large"]
)
async def test_mailbox_without_result_is_checked_less_often(
    tmp_path: Path, clock: Any, mo_status: int, most: int
) -> None:
    """`+SBDIX: 0,n,2,0,0,1` and `1,n,2,0,0,1`: each check costs a credit."""
    async with field_kit(tmp_path, credits_per_day=40) as (sky, k):
        sky.modem.faults.stuck_mail = mo_status
        sky.modem.ring()
        sky.port.poke()
        await trio.sleep(34_000)  # until shortly before midnight
        assert 1 <= k.outbox.budget.get_spent().credits <= most
        assert "did not arrive when requested" in k.outbox.link.reason
        assert k.outbox.link.facts["waitingAtGateway"] == 1
        sky.modem.faults.stuck_mail = None
        sky.home.send(Message("to the kit"))
        assert await outcome(k, await k.post()) is Status.DELIVERED
        await until(lambda: inbound.list_payloads(k.journal, 9))
        await until(lambda: not k.outbox.link.reason)


@pytest.mark.full
async def test_mailbox_checks_use_at_most_half_of_budget(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path, credits_per_day=6) as (sky, k):
        sky.modem.faults.stuck_mail = 0
        sky.modem.ring()
        sky.port.poke()
        await trio.sleep(30_000)
        assert k.outbox.budget.get_spent().credits == 3
        for _ in range(3):
            await outcome(k, await k.post())
        id_ = await k.post()
        await trio.sleep(200)
        assert k.status(id_) is None
        assert "6 of 6 credits" in k.outbox.link.reason


async def test_missed_message_is_fetched_after_port_reopens(tmp_path: Path, clock: Any) -> None:
    """The modem was off and missed a ring. Only +SBDSX shows the waiting message."""
    async with field_kit(tmp_path) as (sky, k):
        sky.port.unplug()
        await until(lambda: k.outbox.link.state is LinkState.ABSENT)
        sky.home.send(Message("while away"))
        sky.modem.state.ring_flag = False
        sky.port.plug()
        await until(lambda: inbound.list_payloads(k.journal, 9))


async def test_sos_is_sent_before_doubtful_message(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.statuses.extend(failing(18, 4))
        first = await k.post(message={"content": "x" * 300})
        await until(lambda: len(sky.modem.faults.statuses) == 1)
        await outcome(k, await k.post(message={"content": "help"}, priority=100))
        assert sky.contents[0] == "help"
        assert await outcome(k, first) is Status.DELIVERED
        # The open incident is named too if it costs nothing.
        assert {each for each in sky.contents if isinstance(each, str)} == {"help", "x" * 300}


async def test_success_status_without_momsn_advance_is_not_believed(
    tmp_path: Path, clock: Any
) -> None:
    """A status 32 that is read as 2 would mean "sent", but the MOMSN has not moved."""
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.statuses.append(PlannedStatus(2, delivered=False, counted=False))
        assert await outcome(k, await k.post()) is Status.DELIVERED
        assert sky.contents == ["hello"]


@pytest.mark.parametrize("stored_echo", [True, False])
async def test_reset_between_write_and_session_is_no_delivery(
    tmp_path: Path, clock: Any, stored_echo: bool
) -> None:
    """The session of an empty buffer ends with 0, and the MOMSN advances. If the modem's stored
    settings are without echo, only the buffer's flag shows the reset.
    """
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.reset_before_session = 1
        sky.modem.state.stored = VolatileState(echo=stored_echo)
        assert await outcome(k, await k.post(message={"content": "help"}, priority=100)) is (
            Status.DELIVERED
        )
        assert sky.contents == ["help"]


@pytest.mark.parametrize("after", ["write", "record_intent"])
async def test_rewritten_message_is_not_counted_as_sent_after_power_cut(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """The previous session was empty and moved the MOMSN. Now the buffer is full again, and the
    number is one higher.
    """
    calls = 0
    second = trio.Event()
    kind = sbd_modem.Modem if after == "write" else ChannelOutbox
    carried_out = getattr(kind, after)

    async def cut(*what: Any, **how: Any) -> Any:
        nonlocal calls
        calls += 1
        result = await carried_out(*what, **how)
        if calls == 2:
            second.set()
            await trio.sleep_forever()
        return result

    sky = Sky(tmp_path)
    sky.modem.faults.reset_before_session = 1
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        with monkeypatch.context() as context:
            context.setattr(kind, after, cut)
            async with agent(sky) as k:
                id_ = await k.post()
                with fail_after(900):
                    await second.wait()
        assert sky.contents == []
        async with agent(sky) as k:
            assert await outcome(k, id_) is Status.DELIVERED
            assert sky.contents == ["hello"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kept", [0, 2])
async def test_occasional_empty_sessions_are_not_counted_as_modem_habit(
    tmp_path: Path, clock: Any, kept: int
) -> None:
    """Sometimes the buffer is empty. In between, the modem keeps the sent message."""
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.state.stored = VolatileState(echo=False)
        for number in range(satellite.EMPTY_SESSIONS_MAX + 1):
            for other in range(kept):
                await outcome(k, await k.post(message={"content": f"kept {number} {other}"}))
            sky.modem.faults.reset_before_session = 1
            text = f"message {number}"
            assert await outcome(k, await k.post(message={"content": text})) is Status.DELIVERED
            assert sky.contents[-1] == text


async def test_modem_that_clears_sent_buffer_causes_few_extra_sessions(
    tmp_path: Path, clock: Any
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.clears_what_it_sent = True
        assert await outcome(k, await k.post()) is Status.DELIVERED
        assert sky.gateway.sessions <= 3
        assert await outcome(k, await k.post(message={"content": "next"})) is Status.DELIVERED
        assert sky.gateway.sessions <= 4


@pytest.mark.parametrize("stored", [{"verbose": False}, {"quiet": True}])
async def test_stored_settings_that_hide_answers_are_overridden(
    tmp_path: Path, clock: Any, stored: Any
) -> None:
    sky = Sky(tmp_path)
    sky.modem.state.stored = VolatileState(**stored)
    sky.modem.start_brown_out()
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with agent(sky) as k:
            assert await outcome(k, await k.post()) is Status.DELIVERED
        nursery.cancel_scope.cancel()


async def test_byte_lost_on_line_to_modem_delays_message_by_seconds(
    tmp_path: Path, clock: Any
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.swallow = 1
        began = trio.current_time()
        assert await outcome(k, await k.post(message={"content": "x" * 200})) is Status.DELIVERED
        assert trio.current_time() - began < 30
        assert sky.contents == ["x" * 200]


async def test_unfinished_write_of_dead_agent_delays_message_by_seconds(
    tmp_path: Path, clock: Any
) -> None:
    """The modem waits a minute for the payload, and takes each command for a part of it."""
    sky = Sky(tmp_path)
    sky.modem.receive_data(b"AT+SBDWB=340\r")
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        began = trio.current_time()
        async with agent(sky) as k:
            assert await outcome(k, await k.post()) is Status.DELIVERED
            assert trio.current_time() - began < 30
        nursery.cancel_scope.cancel()


async def test_stalled_serial_line_is_used_again(tmp_path: Path, clock: Any) -> None:
    """The line stalls like a hub or an adapter. The message is read when it continues."""
    sky = Sky(tmp_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with sbd_modem.open_modem(str(tmp_path / "modem"), 19_200, ChannelLink()) as modem:
            line = os.open(tmp_path / "modem", os.O_RDWR | os.O_NOCTTY)
            termios.tcflow(line, termios.TCOOFF)
            assert await modem.read() is None
            termios.tcflow(line, termios.TCOON)
            assert await modem.read() is not None
            os.close(line)
        nursery.cancel_scope.cancel()


def answers(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[AtAnswer], AtAnswer], lines: str = ""
) -> None:
    """Change the modem's answers on the line: those for a read message, or for these lines."""
    do = SimulatedModem._run_answer

    def spoil(modem: SimulatedModem, answered: AtAnswer) -> None:
        meant = answered.lines[:1] == (lines,) if lines else bool(answered.before)
        do(modem, make(answered) if meant else answered)

    monkeypatch.setattr(SimulatedModem, "_run_answer", spoil)


async def test_text_before_error_counts_as_refused_command(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused +SBDIXA counts as refused, whatever text comes before the ERROR."""
    answers(monkeypatch, lambda _: AtAnswer(("HARDWARE FAILURE: GPIO, 0123", "ERROR")), "ERROR")
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.unknown_commands = frozenset({"+SBDIXA", "+CIER", "+CGSN", "+SBDSX"})
        await until(lambda: k.outbox.link.state is LinkState.READY)
        sky.home.send(Message("hello kit"))
        sky.modem.ring()
        sky.port.poke()
        await until(lambda: inbound.list_payloads(k.journal, 9))


async def test_disabled_account_is_reported_as_link_fault(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.statuses.append(PlannedStatus(15, delivered=False, counted=False))
        id_ = await k.post()
        await until(lambda: k.outbox.link.state is LinkState.FAULT)
        assert "account" in k.outbox.link.reason
        assert await outcome(k, id_, within=3600) is Status.DELIVERED
        assert k.outbox.link.state is not LinkState.FAULT


async def inbox_contents(k: Kit) -> list[str]:
    import json

    rows = reversed(inbound.list_payloads(k.journal, 99))
    return [json.loads(row["body"])["payloads"][0]["events"][0]["content"] for row in rows]


async def test_ring_alert_fetches_all_waiting_messages(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await until(lambda: k.outbox.link.state is LinkState.READY)
        for number in range(3):
            sky.home.send(Message(f"OK\r\n{number}\r\nOK\r\n"))
        sky.modem.ring()
        sky.port.poke()
        await until(lambda: len(inbound.list_payloads(k.journal, 9)) == 3)
        assert await inbox_contents(k) == [f"OK\r\n{number}\r\nOK\r\n" for number in range(3)]
        assert not sky.modem.state.ring_flag
        await trio.sleep(1200)
        assert k.outbox.budget.get_spent().credits == 3 * 1 + 1


async def test_ring_alert_missed_while_off_is_handled_at_start(tmp_path: Path, clock: Any) -> None:
    sky = Sky(tmp_path)
    sky.home.send(Message("hello kit"))
    sky.modem.state.ring_flag = True
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with agent(sky) as k:
            await until(lambda: inbound.list_payloads(k.journal, 9))
        nursery.cancel_scope.cancel()


async def test_ring_alert_during_session_is_handled_afterwards(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.modem.faults.statuses.append(PlannedStatus(32, delivered=False, counted=False))
        await k.post()
        await until(lambda: sky.modem.session)
        sky.home.send(Message("during"))
        sky.modem.ring()
        sky.port.poke()
        await until(lambda: inbound.list_payloads(k.journal, 9))


async def test_mt_message_of_session_with_status_4_is_stored(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.home.send(Message("mail"))
        sky.modem.faults.statuses.append(PlannedStatus(4, delivered=True, counted=True))
        await outcome(k, await k.post())
        await until(lambda: inbound.list_payloads(k.journal, 9))
        assert await inbox_contents(k) == ["mail"]


@pytest.mark.parametrize("wrong", [1, 4])
async def test_mt_message_with_wrong_checksum_is_read_again(
    tmp_path: Path, clock: Any, wrong: int
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.home.send(Message("precious"))
        sky.modem.faults.wrong_sums = wrong
        await outcome(k, await k.post())
        await until(lambda: inbound.list_payloads(k.journal, 9))
        assert await inbox_contents(k) == ["precious"]


async def test_mt_message_survives_temporary_line_noise(tmp_path: Path, clock: Any) -> None:
    """The modem has the only copy: the message stays there and is booked once."""
    async with field_kit(tmp_path) as (sky, k):
        # The message comes in our session. A ring alert would cause another session, which needs
        # the modem's MT buffer.
        sky.modem.faults.wrong_sums = 8
        ours = await k.post()
        sky.home.send(Message("precious"))
        await outcome(k, ours)
        await until(lambda: "garbled" in k.outbox.link.reason)
        assert sky.modem.state.volatile.mt_flag
        await until(lambda: inbound.list_payloads(k.journal, 9))
        assert await inbox_contents(k) == ["precious"]
        await until(lambda: not sky.modem.state.volatile.mt_flag)
        assert k.outbox.budget.get_spent().credits == 1 + 2, "one credit MO and two credits MT"
        await until(lambda: not k.outbox.link.reason)
        assert k.journal.read("SELECT 1 FROM dead_letter") == []


async def test_mt_message_that_modem_keeps_is_booked_once(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        # The message comes in our session. A ring alert would cause another session, which clears
        # the modem's buffer.
        sky.modem.faults.unknown_commands = frozenset({"+SBDD1"})
        ours = await k.post()
        sky.home.send(Message("precious"))
        await outcome(k, ours)
        await until(lambda: inbound.list_payloads(k.journal, 9))
        await trio.sleep(300)
        assert sky.modem.state.volatile.mt_flag
        sky.modem.faults.unknown_commands = frozenset()
        await until(lambda: not sky.modem.state.volatile.mt_flag)
        assert await inbox_contents(k) == ["precious"]
        assert k.outbox.budget.get_spent().credits == 1 + 2
        sky.home.send(Message("precious"))
        await outcome(k, await k.post())
        await until(lambda: len(inbound.list_payloads(k.journal, 9)) == 2)
        assert k.outbox.budget.get_spent().credits == (1 + 2) + (1 + 1), "a new message, same text"


@pytest.mark.parametrize("place_is_needed", [True, False])
async def test_unreadable_mt_message_becomes_dead_letter_and_is_sent_again(
    tmp_path: Path, clock: Any, place_is_needed: bool
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.home.send(Message("precious"))
        sky.modem.faults.wrong_sums = 99
        sky.modem.ring()
        sky.port.poke()
        await until(lambda: "garbled" in k.outbox.link.reason)
        if place_is_needed:
            await k.post()
        await until(lambda: k.journal.read("SELECT 1 FROM dead_letter"))
        sky.modem.faults.wrong_sums = 0
        await until(lambda: inbound.list_payloads(k.journal, 9))
        assert await inbox_contents(k) == ["precious"]
        assert k.journal.read("SELECT 1 FROM unreadable_owed") == []
        assert k.journal.read("SELECT 1 FROM dead_letter") == [(1,)], "the received bytes are kept"
        await trio.sleep(3600)
        assert sky.gateway.sessions <= 4


@pytest.mark.parametrize("left", [True, False])
async def test_power_cut_during_session_with_only_receipts_settles_receipts(
    tmp_path: Path, clock: Any, left: bool
) -> None:
    """A receipt or a report is in flight too, although it contains no Package."""
    sky = Sky(tmp_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with agent(sky, receipts_at_once=True) as k:
            sky.home.send(Message("confirm this"))
            sky.modem.ring()
            sky.port.poke()
            await until(
                lambda: inbound.list_pending_receipts(k.journal, "Satellite") and sky.modem.session
            )
            await until(lambda: k.outbox.get_unsettled() is not None)
        if left:
            sky.modem.finish_session()
        else:
            sky.modem.start_brown_out()
        async with agent(sky, receipts_at_once=True) as k:
            await until(lambda: k.outbox.get_unsettled() is None)
            await until(lambda: not inbound.list_pending_receipts(k.journal, "Satellite"))
            assert await outcome(k, await k.post()) is Status.DELIVERED
        nursery.cancel_scope.cancel()


async def test_unreadable_mt_message_is_reported_after_power_cut(
    tmp_path: Path, clock: Any
) -> None:
    sky = Sky(tmp_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with agent(sky) as k:
            sky.home.send(Message("precious"))
            sky.modem.faults.wrong_sums = 99
            sky.modem.state.service, sky.modem.state.signal = True, 4
            sky.modem.ring()
            sky.port.poke()
            await until(lambda: sky.modem.state.volatile.mt_flag)
            sky.modem.faults.statuses.extend(failing(32, 99))
            await until(lambda: k.journal.read("SELECT 1 FROM unreadable_owed"))
        sky.modem.faults.wrong_sums = 0
        sky.modem.faults.statuses.clear()
        async with agent(sky) as k:
            await until(lambda: inbound.list_payloads(k.journal, 9))
            assert await inbox_contents(k) == ["precious"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("size", [1_890, 700])
async def test_long_mt_message_of_9523_is_read(tmp_path: Path, clock: Any, size: int) -> None:
    """The message is longer than a 9602's, so it also takes longer on the line."""
    async with field_kit(tmp_path) as (sky, k):
        sky.home._writer._mt_bytes = 1_890
        sky.home.send(Message("x" * (size - 100)))
        sky.modem.ring()
        sky.port.poke()
        await until(lambda: inbound.list_payloads(k.journal, 9))
        assert await inbox_contents(k) == ["x" * (size - 100)]


@pytest.mark.parametrize("nuls", [1, 2, 4, 7])
async def test_nul_bytes_before_mt_message_are_ignored(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch, nuls: int
) -> None:
    answers(monkeypatch, lambda read: replace(read, before=b"\0" * nuls + read.before))
    async with field_kit(tmp_path) as (sky, k):
        sky.home.send(Message("precious"))
        await outcome(k, await k.post())
        await until(lambda: inbound.list_payloads(k.journal, 9))
        assert await inbox_contents(k) == ["precious"]


CUT: dict[str, Callable[[AtAnswer], AtAnswer]] = {
    "no end": lambda read: AtAnswer((), before=read.before[:9]),
    "no OK": lambda read: AtAnswer((), before=read.before),
    "silence": lambda read: AtAnswer(()),
    "an error": lambda read: AtAnswer(("ERROR",)),
    "empty": lambda read: AtAnswer(before=bytes(4)),
    "noise": lambda read: AtAnswer(before=b"\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("how", CUT)
async def test_unreadable_mt_message_is_paid_once_and_delays_no_sos(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """No other message is fetched into its place. If part of it arrived, that part is kept."""
    answers(monkeypatch, CUT[how])
    async with field_kit(tmp_path) as (sky, k):
        for number in range(3):
            sky.queue.put(f"from a stranger {number}".encode())
        sky.modem.ring()
        sky.port.poke()
        await until(lambda: sky.modem.state.mtmsn == 1)
        began = trio.current_time()
        await outcome(k, await k.post(message={"content": "help"}, priority=100))
        assert trio.current_time() - began < 60
        await trio.sleep(600)
        assert k.outbox.budget.get_spent().credits == sky.modem.state.mtmsn + 1
        if how in ("silence", "an error", "noise"):
            assert sky.modem.state.volatile.mt_flag
            assert "does not hand it over" in k.outbox.link.reason
            assert sky.gateway.count_waiting() == 1, "only the SOS session fetched a message"


@pytest.mark.parametrize("reached", [True, False])
async def test_mailbox_check_with_lost_reply_is_booked_and_retried_later(
    tmp_path: Path, clock: Any, reached: bool
) -> None:
    """Only the MOMSN shows the cost of a session without a message."""
    async with field_kit(tmp_path, credits_per_day=40) as (sky, k):
        sky.modem.faults.stuck_mail = 0
        sky.modem.faults.lose_replies = 99
        if not reached:
            sky.modem.faults.statuses.extend(failing(32, 99))
        sky.modem.ring()
        sky.port.poke()
        await trio.sleep(3600)
        assert k.outbox.budget.get_spent().credits == sky.modem.state.momsn
        assert sky.modem.state.momsn <= 5 if reached else sky.modem.state.momsn == 0


async def test_mailbox_check_waits_while_modem_holds_sent_message(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [(p, c) for p, c in sbd_commands._COMMANDS if c is not sbd_commands._clear]
    refuse = (r"\+SBDD[012]", lambda asked: AtAnswer(("1", "OK")))
    monkeypatch.setattr(sbd_commands, "_COMMANDS", (*known, refuse))
    async with field_kit(tmp_path) as (sky, k):
        await outcome(k, await k.post())
        assert sky.modem.state.volatile.mo_flag
        sky.home.send(Message("to the kit"))
        sky.modem.ring()
        sky.port.poke()
        await trio.sleep(600)
        assert sky.contents == ["hello"]


async def test_unread_mt_message_in_modem_survives_power_cut(tmp_path: Path, clock: Any) -> None:
    sky = Sky(tmp_path)
    sky.home.send(Message("unread"))
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with agent(sky) as k:
            await k.post()
            await until(lambda: sky.modem.session)
        sky.modem.finish_session()
        assert sky.modem.state.volatile.mt_flag
        for _ in range(2):
            async with agent(sky) as k:
                await until(lambda: not sky.modem.state.volatile.mt_flag)
                assert await inbox_contents(k) == ["unread"]
            # This is the state after a power cut between the commit and the clearing of the modem.
            sky.modem.state.volatile.mt_flag = True
        nursery.cancel_scope.cancel()


async def test_budget_limits_mailbox_checks(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path, credits_per_day=2) as (sky, k):
        for number in range(5):
            sky.home.send(Message(str(number)))
        sky.modem.ring()
        sky.port.poke()
        await trio.sleep(1200)
        assert k.outbox.budget.get_spent().credits == 2
        assert sky.gateway.count_waiting() == 4


async def test_idle_kit_opens_no_session(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await trio.sleep(1200)
        assert sky.gateway.sessions == 0
        assert sky.modem.state.momsn == 0
        assert k.outbox.budget.get_spent().credits == 0


async def test_lost_mt_fragments_are_requested(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.home.send(Message("x" * 900))
        assert sky.queue.lose_first()
        sky.modem.ring()
        sky.port.poke()
        await until(lambda: sky.gateway.count_waiting() == 0 and not sky.modem.session)
        await trio.sleep(60)
        (item,) = inbound.list_incomplete(k.journal)
        slices = inbound.read_committed_fragments(k.journal, item)
        report = Report(item.parts, frozenset(slices), compute_fragments_digest(slices.values()))
        k.outbox.report(item.origin, Entry(item.sequence, report, 1_790_000_000))
        await until(lambda: inbound.list_payloads(k.journal, 9))
        assert await inbox_contents(k) == ["x" * 900]
