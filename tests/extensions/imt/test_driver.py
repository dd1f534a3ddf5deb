"""The driver of a 9704 with a simulated modem at the other end of a real pty, in virtual time.

The tests count at the network's gateway and in the answers to the caller.
"""

from __future__ import annotations

import base64
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.channels.line_speed import LineSpeed
from fieldagent.agent.journal import inbound
from fieldagent.agent.outbound.budget import DayLimit
from fieldagent.extensions.imt import messages
from fieldagent.extensions.imt.agent import driver
from fieldagent.extensions.imt.agent.recognition import PROBE
from fieldagent.extensions.lab.simulator.base_camp import BaseCamp
from fieldagent.extensions.lab.simulator.gateway import SimulatedGateway
from fieldagent.extensions.lab.simulator.imt_modem import STEPS, SimulatedImtModem
from fieldagent.extensions.lab.simulator.imt_port import ImtPort
from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.package.package import Channel, Data, Message, Status
from fieldagent.package.reading import read_package
from fieldagent.wire.credit import make_byte_tariff
from tests.agent.channels.contract import Checked
from tests.kit import RATES, Kit, fail_after, kit

LARGE = bytes(range(256)) * 300
"""76 800 bytes: 54 segments."""
SOS: dict[str, Any] = {"message": {"content": "help"}, "priority": 100}


@pytest.fixture(params=RATES)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock:
    """Return a virtual clock with short real waits, because both ends of the pty run in this
    process.
    """
    return trio.testing.MockClock(request.param, autojump_threshold=0)


@dataclass
class Sky:
    """Modem, gateway and serial line, which outlive a single run of the agent."""

    path: Path
    latency: float = 20.0

    def __post_init__(self) -> None:
        self.queue = MtQueue()
        self.home = BaseCamp(lambda line: None, self.queue, mt_bytes=messages.PAYLOAD_BYTES)
        gateway = SimulatedGateway(lambda line: None, self.queue, self.home, make_byte_tariff(0))
        self.gateway = gateway
        self.modem = SimulatedImtModem(gateway)
        self.port = ImtPort(self.modem, self.path / "modem", latency=self.latency)

    @property
    def faults(self) -> Any:
        return self.modem.faults

    @property
    def contents(self) -> list[object]:
        return [getattr(item, "content", item) for item in self.home.received]

    def bring(self, text: str) -> None:
        self.home.send(Message(text))
        self.modem.push_mail()
        self.port.poke()


@asynccontextmanager
async def agent(sky: Sky, *, minimum_bytes: int = 0, **how: Any) -> AsyncIterator[Kit]:
    """Run the agent's core with the real driver. At the end of the block its power fails."""
    pace = driver.ImtPace(random.Random(1), minimum_bytes)
    async with kit(sky.path, **how) as k, trio.open_nursery() as nursery:

        async def drive() -> None:
            await driver.run(
                str(sky.path / "modem"),
                Checked(k.outbox, in_flight=1),
                k.reception,
                k.outbox.link,
                pace,
                speed=LineSpeed(230_400, PROBE),
            )

        nursery.start_soon(drive)
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


async def outcome(k: Kit, id_: int, within: float = 3600) -> Status | None:
    """Return the terminal status of a posted Package."""
    with fail_after(within):
        return (await k.endings.wait_for_outcome(k.standing(id_).sequence)).status


async def until(condition: Callable[[], object], within: float = 3600) -> None:
    with fail_after(within):
        while not condition():
            await trio.sleep(1)


def data(content: bytes) -> dict[str, Any]:
    return {"data": {"payload": base64.b64encode(content).decode()}}


async def test_package_is_delivered_over_the_serial_line(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        assert await outcome(k, await k.post()) is Status.DELIVERED
        assert sky.contents == ["hello"]
        link = k.outbox.link
        assert link.signal == 4
        assert {"imei", "sim", "topic"} <= link.facts.keys()
        assert link.facts["imei"] == sky.modem.imei
        assert sky.modem.version == (1, 7, 0), "the newest of the list"


async def test_package_is_delivered_only_after_the_final_mo_status(
    tmp_path: Path, clock: Any
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        id_ = await k.post()
        await until(lambda: sky.modem.has_transit)
        assert k.status(id_) is None
        assert await outcome(k, id_) is Status.DELIVERED


@pytest.mark.parametrize("size", [1, 1400, 1446, 2892, 99_000])
async def test_large_package_is_sent_as_one_message(tmp_path: Path, clock: Any, size: int) -> None:
    content = random.Random(size).randbytes(size)
    async with field_kit(tmp_path) as (sky, k):
        assert await outcome(k, await k.post(**data(content))) is Status.DELIVERED
        assert sky.home.received == [Data(content)]
        assert sky.gateway.sessions == 1


async def test_mt_messages_of_any_size_are_stored(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await outcome(k, await k.post())
        sky.home.send(Data(LARGE))
        sky.bring("come down")
        await until(lambda: len(inbound.list_payloads(k.journal, 9)) == 2)


@pytest.mark.parametrize("word", messages.FINAL)
async def test_package_is_delivered_once_after_any_final_mo_status(
    tmp_path: Path, clock: Any, word: str
) -> None:
    """One message gets this status, and then the sky is clear. The Package is never lost or
    doubled.
    """
    sent = word == "mo_ack_received"
    async with field_kit(tmp_path) as (sky, k):
        sky.faults.finals.append((word, sent))
        assert await outcome(k, await k.post(), within=7200) is Status.DELIVERED
        assert sky.contents == ["hello"]
        assert sky.gateway.sessions == 1


@pytest.mark.parametrize("word", ["network_error", "message_transfer_timeout", "news_of_2030"])
async def test_message_delivered_despite_a_failure_status_arrives_once(
    tmp_path: Path, clock: Any, word: str
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.faults.finals.append((word, True))
        assert await outcome(k, await k.post()) is Status.DELIVERED
        assert sky.gateway.sessions == 2
        assert sky.contents == ["hello"], "the number inside makes the second copy harmless"


@pytest.mark.parametrize("word", ["subscription_invalid", "message_discarded_on_overflow", "odd"])
async def test_message_refused_by_the_modem_is_retried_later(
    tmp_path: Path, clock: Any, word: str
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.faults.refusals.append(word)
        assert await outcome(k, await k.post(), within=7200) is Status.DELIVERED
        assert sky.gateway.sessions == 1


async def test_account_refusal_is_reported(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.faults.refusals += ["subscription_invalid"] * 2
        await k.post()
        await until(lambda: "does not allow this topic" in "".join(_events(k)))
        assert sky.gateway.sessions == 0


def _events(k: Kit) -> list[str]:
    return [str(line) for line in k.history(1)]


# Faults.


@pytest.mark.parametrize("segments", [1, 20, 53, 54])
async def test_package_survives_modem_power_loss_during_its_segments(
    tmp_path: Path, clock: Any, segments: int
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.faults.reset_after = segments
        assert await outcome(k, await k.post(**data(LARGE))) is Status.DELIVERED
        assert sky.home.received == [Data(LARGE)]
        assert sky.gateway.sessions == 1
        assert sky.modem.boots == 2
        doubted = any("may have left" in line for line in _events(k))
        assert doubted == (segments == 54), "before its last segment nothing can have left"


@pytest.mark.parametrize("step", STEPS)
async def test_package_survives_modem_power_loss_at_each_step(
    tmp_path: Path, clock: Any, step: str
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.faults.reset_at = step
        assert await outcome(k, await k.post()) is Status.DELIVERED
        assert sky.contents == ["hello"]
        assert sky.gateway.sessions == (2 if step == "told" else 1)


async def test_package_survives_modem_power_loss_in_transit(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        id_ = await k.post()
        await until(lambda: sky.modem.has_transit)
        sky.modem.reset()
        sky.port.poke()
        assert await outcome(k, id_) is Status.DELIVERED
        assert any("it has no number to check" in line for line in _events(k)), "said plainly"
        assert sky.contents == ["hello"]


async def test_package_survives_an_unplugged_port_of_a_powered_modem(
    tmp_path: Path, clock: Any
) -> None:
    """The modem keeps its power: its message is cancelled or reported as sent before another one
    goes.
    """
    async with field_kit(tmp_path) as (sky, k):
        id_ = await k.post()
        await until(lambda: sky.modem.has_transit)
        sky.port.has_own_power = True
        sky.port.unplug()
        await trio.sleep(1)
        sky.port.plug()
        assert await outcome(k, id_) is Status.DELIVERED
        assert sky.contents == ["hello"]
        assert sky.gateway.sessions == 1, "its own status has settled the doubt"


async def test_restarted_agent_settles_the_message_in_transit(tmp_path: Path, clock: Any) -> None:
    sky = Sky(tmp_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with agent(sky) as k:
            id_ = await k.post()
            await until(lambda: sky.modem.has_transit)
        async with agent(sky) as k:
            assert await outcome(k, id_) is Status.DELIVERED
            assert sky.gateway.sessions == 1
        nursery.cancel_scope.cancel()


async def test_restarted_agent_cancels_a_message_that_has_not_left(
    tmp_path: Path, clock: Any
) -> None:
    sky = Sky(tmp_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with agent(sky) as k:
            await until(lambda: k.outbox.link.state is LinkState.READY)
            sky.modem.set_sky(visible=False, bars=0)
            id_ = await k.post()
            await until(lambda: k.outbox.get_unsettled() and k.outbox.get_unsettled().at_modem)  # type: ignore[union-attr]
            await until(lambda: sky.modem._mo is not None and sky.modem._mo.is_complete)
        async with agent(sky) as k:
            await until(lambda: sky.modem._mo is None or sky.modem._mo.id == 1)
            sky.modem.set_sky(visible=True, bars=5)
            sky.port.poke()
            assert await outcome(k, id_) is Status.DELIVERED
            assert sky.gateway.sessions == 1, "the first copy was cancelled before it left"
        nursery.cancel_scope.cancel()


async def test_lost_final_status_causes_one_more_session(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.faults.lose_finals = 1
        assert await outcome(k, await k.post()) is Status.DELIVERED
        assert sky.gateway.sessions == 2
        assert sky.contents == ["hello"]


async def test_late_status_of_another_message_is_ignored(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        id_ = await k.post()
        await until(lambda: sky.modem.has_transit)
        named = {"topic_id": 244, "message_id": 77, "final_mo_status": "mo_ack_received"}
        sky.modem._send_report("messageOriginateStatus", named)
        sky.port.poke()
        await trio.sleep(5)
        assert k.status(id_) is None
        assert await outcome(k, id_) is Status.DELIVERED


async def test_lost_answer_of_the_modem_is_survived(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.faults.lose_answers = 1
        assert await outcome(k, await k.post()) is Status.DELIVERED
        assert sky.contents == ["hello"]


async def test_pause_in_segment_requests_is_survived(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.faults.pause_after = 10
        assert await outcome(k, await k.post(**data(LARGE))) is Status.DELIVERED
        assert sky.gateway.sessions == 1
        assert sky.home.received == [Data(LARGE)]


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_malformed_responses_are_survived(tmp_path: Path, clock: Any, times: int) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await until(lambda: k.outbox.link.state is LinkState.READY)
        sky.faults.malformed = times
        assert await outcome(k, await k.post()) is Status.DELIVERED
        assert sky.contents == ["hello"]


async def test_mt_message_between_request_and_answer_is_stored(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await until(lambda: k.outbox.link.state is LinkState.READY)
        sky.home.send(Message("between"))
        sky.faults.interleave = 1
        assert await outcome(k, await k.post()) is Status.DELIVERED
        await until(lambda: inbound.list_payloads(k.journal, 9))
        assert sky.contents == ["hello"]


async def test_mt_message_with_a_wrong_crc_is_kept_as_a_dead_letter(
    tmp_path: Path, clock: Any
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await until(lambda: k.outbox.link.state is LinkState.READY)
        sky.faults.wrong_crcs = 1
        sky.bring("garbled")
        sky.bring("whole")
        await until(lambda: inbound.list_payloads(k.journal, 9))
        assert len(inbound.list_payloads(k.journal, 9)) == 1
        rows = k.journal.read("SELECT reason FROM dead_letter")
        assert [reason for (reason,) in rows] == ["its CRC is wrong"]


async def test_mt_message_with_a_wrong_crc_is_requested_again(tmp_path: Path, clock: Any) -> None:
    """The modem has no copy, so only the sender can help."""
    async with field_kit(tmp_path) as (sky, k):
        await until(lambda: k.outbox.link.state is LinkState.READY)
        sky.faults.wrong_crcs = 1
        sky.bring("garbled")

        def goes_again() -> bool:
            sky.modem.push_mail()
            sky.port.poke()
            return bool(inbound.list_payloads(k.journal, 9))

        await until(goes_again)
        assert "garbled" in str(inbound.list_payloads(k.journal, 9)[0]["body"])
        # It may arrive before the end of the report about it is stored.
        await until(lambda: not k.journal.read("SELECT 1 FROM unreadable_owed"))


async def test_receipt_is_sent_with_the_next_package_if_bytes_are_billed(
    tmp_path: Path, clock: Any
) -> None:
    """A receipt takes about ten bytes. The hub needs receipts, because the modem keeps no copy."""
    async with field_kit(tmp_path) as (sky, k):
        await until(lambda: k.outbox.link.state is LinkState.READY)
        sky.bring("down")
        await until(lambda: inbound.list_pending_receipts(k.journal, "Satellite"))
        before = k.outbox.budget.get_spent().bytes
        assert await outcome(k, await k.post()) is Status.DELIVERED
        assert inbound.list_pending_receipts(k.journal, "Satellite") == []
        assert k.outbox.budget.get_spent().bytes - before < 60


async def test_hanging_modem_is_reported_absent_and_reconnected(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await outcome(k, await k.post())
        sky.faults.deaf = True
        await until(lambda: k.outbox.link.state is LinkState.ABSENT)
        id_ = await k.post(message={"content": "later"})
        await trio.sleep(300)
        sky.faults.deaf = False
        assert await outcome(k, id_) is Status.DELIVERED
        assert sky.contents == ["hello", "later"]


async def test_modem_absent_at_start_is_used_once_plugged_in(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.port.unplug()
        id_ = await k.post()
        await until(lambda: k.outbox.link.state is LinkState.ABSENT)
        sky.port.plug()
        assert await outcome(k, id_) is Status.DELIVERED


async def test_unprovisioned_sim_is_reported_until_topics_are_assigned(
    tmp_path: Path, clock: Any
) -> None:
    sky = Sky(tmp_path)
    sky.faults.no_topics = True
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with agent(sky) as k:
            id_ = await k.post()
            await until(lambda: "10 to 30 minutes" in k.outbox.link.reason)
            assert k.outbox.link.state is LinkState.NO_SERVICE
            sky.faults.no_topics = False
            assert await outcome(k, id_) is Status.DELIVERED
        nursery.cancel_scope.cancel()


async def test_missing_sim_is_reported_as_a_fault(tmp_path: Path, clock: Any) -> None:
    sky = Sky(tmp_path)
    sky.faults.no_sim = True
    async with trio.open_nursery() as nursery:
        await nursery.start(sky.port.run)
        async with agent(sky) as k:
            await until(lambda: k.outbox.link.state is LinkState.FAULT)
            assert "no SIM" in k.outbox.link.reason
        nursery.cancel_scope.cancel()


# An SOS.


async def test_sos_replaces_a_message_that_has_not_left(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await until(lambda: k.outbox.link.state is LinkState.READY)
        sky.modem.set_sky(visible=False, bars=0)
        first = await k.post()
        await until(lambda: sky.modem._mo is not None and sky.modem._mo.is_complete)
        await k.post(**SOS)
        await until(lambda: sky.modem._mo is not None and sky.modem._mo.id == 1)
        sky.modem.set_sky(visible=True, bars=5)
        sky.port.poke()
        assert await outcome(k, first) is Status.DELIVERED
        assert sky.contents[0] == "help"
        assert sky.contents.count("hello") == 1


async def test_sos_without_service_is_never_cancelled(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await until(lambda: k.outbox.link.state is LinkState.READY)
        sky.modem.set_sky(visible=False, bars=0)
        id_ = await k.post(**SOS)
        await until(lambda: sky.modem._mo is not None and sky.modem._mo.is_complete)
        await trio.sleep(3 * driver.TRANSIT_MAX_S)
        assert sky.modem._mo is not None
        assert sky.modem._mo.id == 0, "the modem still has the first"
        sky.modem.set_sky(visible=True, bars=5)
        sky.port.poke()
        assert await outcome(k, id_) is Status.DELIVERED


async def test_sos_with_a_lost_status_is_sent_again(tmp_path: Path, clock: Any) -> None:
    """The modem reports that it sends nothing, and does not report the result of the message."""
    async with field_kit(tmp_path) as (sky, k):
        sky.faults.lose_finals = 1
        assert await outcome(k, await k.post(**SOS), within=600) is Status.DELIVERED
        assert sky.gateway.sessions == 2
        assert sky.contents == ["help"]


@pytest.mark.full
async def test_sos_is_sent_again_late_if_the_modem_reports_no_activity(
    tmp_path: Path, clock: Any
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        sky.faults.no_activity = True
        sky.faults.lose_finals = 1
        id_ = await k.post(**SOS)
        await trio.sleep(driver.SOS_TRANSIT_MAX - 600)
        assert k.status(id_) is None, "for all that is known it is on its way"
        assert await outcome(k, id_, within=1800) is Status.DELIVERED
        assert sky.contents == ["help"]


@pytest.mark.parametrize("urgent", [False, True])
async def test_modem_that_hangs_with_a_message_is_detected(
    tmp_path: Path, clock: Any, urgent: bool
) -> None:
    """The modem is reset afterwards, and the message is sent."""
    async with field_kit(tmp_path) as (sky, k):
        await until(lambda: k.outbox.link.state is LinkState.READY)
        sky.modem.set_sky(visible=False, bars=0)
        id_ = await k.post(**(SOS if urgent else {}))
        await until(lambda: sky.modem._mo is not None and sky.modem._mo.is_complete)
        sky.faults.deaf = True
        await until(lambda: k.outbox.link.state is LinkState.ABSENT, within=120)
        sky.faults.deaf = False
        sky.modem.reset()
        sky.modem.set_sky(visible=True, bars=5)
        assert await outcome(k, id_) is Status.DELIVERED
        assert len(sky.contents) == 1


async def test_modem_reset_with_a_lost_boot_report_is_detected(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path) as (sky, k):
        id_ = await k.post(**SOS)
        await until(lambda: sky.modem.has_transit)
        sky.modem.reset()
        sky.modem._output.clear()
        assert await outcome(k, id_, within=600) is Status.DELIVERED
        assert sky.contents == ["help"]


@pytest.mark.full
async def test_message_without_service_is_cancelled_and_sent_later(
    tmp_path: Path, clock: Any
) -> None:
    async with field_kit(tmp_path) as (sky, k):
        await until(lambda: k.outbox.link.state is LinkState.READY)
        sky.modem.set_sky(visible=False, bars=0)
        id_ = await k.post()
        await until(lambda: sky.modem._mo is not None and sky.modem._mo.id > 0, 3 * 3600)
        sky.modem.set_sky(visible=True, bars=5)
        sky.port.poke()
        assert await outcome(k, id_) is Status.DELIVERED
        assert sky.contents == ["hello"]


# Costs.


async def test_bytes_are_booked_instead_of_credits(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path, minimum_bytes=60) as (_, k):
        await outcome(k, await k.post())
        spent = k.outbox.budget.get_spent()
        assert (spent.bytes, spent.credits, spent.doubtful) == (60, 0, 0), "the minimum is billed"
        cost = k.cost(read_package(data(bytes(3000))), Channel.SATELLITE)
        assert (cost.parts, cost.credits, cost.by_bytes) == (1, 0, True)
        assert 3000 < cost.bytes < 3030


async def test_byte_budget_holds_back_everything_except_an_sos(tmp_path: Path, clock: Any) -> None:
    async with field_kit(tmp_path, bytes_limit=DayLimit(100, 50)) as (sky, k):
        await outcome(k, await k.post())
        await k.post(message={"content": "x" * 90})
        await until(lambda: "the budget of today is spent" in k.outbox.describe_hold())
        assert "of 100 bytes" in k.outbox.describe_hold()
        assert await outcome(k, await k.post(**SOS)) is Status.DELIVERED
        assert sky.contents == ["hello", "help"]
