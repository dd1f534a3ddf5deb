"""One Package over several channels: their start times, and the effects of a success or a
failure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.journal.records import EndedDelivery
from fieldagent.agent.outbound.waiting import WaitReasons
from fieldagent.package.delivery import ChannelDelivery, FanOut
from fieldagent.package.forecast import PACKAGES_MIN
from fieldagent.package.package import SOS_PRIORITY, Channel, Status
from fieldagent.wire.outcome import Outcome
from tests.kit import HEAD_START, Kit, kit

SATELLITE, CELLULAR = Channel.SATELLITE, Channel.CELLULAR


def has(k: Kit, channel: Channel) -> bool:
    """Return True if that channel would send a packet now."""
    transmission = k.outboxes[channel].load(340)
    return transmission is not None


def deliveries(k: Kit, id_: int) -> dict[Channel, tuple[Status | None, str]]:
    return {
        name: (delivery.status, delivery.reason)
        for name, delivery in k.standing(id_).deliveries.items()
    }


async def test_every_channel_sends_package_after_first_success(tmp_path: Path) -> None:
    async with kit(tmp_path, SATELLITE, also=[CELLULAR]) as k:
        id_ = await k.post()
        await k.send(channel=SATELLITE)
        assert k.status(id_) is Status.DELIVERED
        await k.send(channel=CELLULAR)
        assert {status for status, _ in deliveries(k, id_).values()} == {Status.DELIVERED}


async def test_satellite_delivery_is_canceled_after_delivery_over_ip(tmp_path: Path) -> None:
    """This holds even with `every`, because the hub itself confirms over IP."""
    async with kit(tmp_path, SATELLITE, also=[CELLULAR]) as k:
        id_ = await k.post()
        await k.send(channel=CELLULAR)
        assert deliveries(k, id_)[SATELLITE] == (Status.CANCELED, "delivered over Cellular")
        assert not has(k, SATELLITE)


async def deliver_over_radio(k: Kit, id_: int) -> int:
    """End the Package because another kit has it, and return its sequence."""
    sequence = k.standing(id_).sequence
    await k.endings.record(
        [EndedDelivery(sequence, Channel.RADIO, ChannelDelivery(Status.DELIVERED))]
    )
    return sequence


@pytest.mark.parametrize("fan_out", list(FanOut))
@pytest.mark.parametrize("heard_ends", [False, True])
@pytest.mark.parametrize("word", [None, "neighbour", "hub"])
async def test_package_heard_by_other_kit_is_sent_until_hub_has_item(
    tmp_path: Path, fan_out: FanOut, heard_ends: bool, word: str | None
) -> None:
    """The kit that heard the item may never reach the hub. `fan-out-until=heard` accepts that."""
    how: dict[str, Any] = {"fan_out": fan_out, "heard_ends": heard_ends}
    async with kit(tmp_path, Channel.RADIO, also=[SATELLITE], station=7, **how) as k:
        id_ = await k.post()
        sequence = await deliver_over_radio(k, id_)
        assert k.status(id_) is Status.DELIVERED
        if word is not None:
            await k.endings.record_arrival_at_hub(sequence, is_proved=word == "hub")
        delivery: tuple[Status | None, str] = (None, "")
        if fan_out is not FanOut.EVERY and heard_ends:
            delivery = (Status.CANCELED, "delivered over Radio")
        elif word == "hub" or (word == "neighbour" and fan_out is not FanOut.EVERY):
            delivery = (Status.CANCELED, "the hub has it")
        assert deliveries(k, id_)[SATELLITE] == delivery


async def test_radio_delivery_of_relayed_package_cancels_satellite(tmp_path: Path) -> None:
    async with kit(tmp_path, Channel.RADIO, also=[SATELLITE], station=7, fan_out=FanOut.FIRST) as k:
        id_ = await k.post()
        await k.note_relayed(k.standing(id_).sequence)
        await deliver_over_radio(k, id_)
        assert deliveries(k, id_)[SATELLITE] == (Status.CANCELED, "delivered over Radio")


async def test_sos_continues_over_satellite_although_hub_has_item(tmp_path: Path) -> None:
    how: dict[str, Any] = {"fan_out": FanOut.CHEAPEST, "heard_ends": True}
    async with kit(tmp_path, Channel.RADIO, also=[SATELLITE], station=7, **how) as k:
        id_ = await k.post(priority=SOS_PRIORITY)
        sequence = await deliver_over_radio(k, id_)
        await k.endings.record_arrival_at_hub(sequence, is_proved=True)
        assert deliveries(k, id_)[SATELLITE] == (None, "")


@pytest.mark.parametrize("fan_out", [FanOut.FIRST, FanOut.CHEAPEST])
async def test_first_success_cancels_other_channels(tmp_path: Path, fan_out: FanOut) -> None:
    async with kit(tmp_path, SATELLITE, also=[CELLULAR], fan_out=fan_out) as k:
        id_ = await k.post()
        await k.send(channel=CELLULAR)
        assert deliveries(k, id_) == {
            CELLULAR: (Status.DELIVERED, ""),
            SATELLITE: (Status.CANCELED, "delivered over Cellular"),
        }
        assert k.status(id_) is Status.DELIVERED
        assert not has(k, SATELLITE)


@pytest.mark.parametrize(
    ("outcome", "delivery"),
    [
        (Outcome.NOT_SENT, (Status.CANCELED, "delivered over Cellular")),
        (Outcome.SENT, (Status.DELIVERED, "")),
    ],
)
async def test_delivery_in_session_is_not_recalled_and_not_retried(
    tmp_path: Path, outcome: Outcome, delivery: tuple[Status, str]
) -> None:
    async with kit(tmp_path, SATELLITE, also=[CELLULAR], fan_out=FanOut.FIRST) as k:
        id_ = await k.post()
        in_session = k.load()
        await k.send(channel=CELLULAR)
        assert deliveries(k, id_)[SATELLITE] == (None, "")
        await k.outbox.settle(in_session, outcome, reason="no service")
        assert deliveries(k, id_)[SATELLITE] == delivery
        assert not has(k, SATELLITE)


async def test_cheapest_channel_has_head_start(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with kit(tmp_path, SATELLITE, also=[CELLULAR], fan_out=FanOut.CHEAPEST) as k:
        await k.post()
        began = trio.current_time()
        await k.outboxes[SATELLITE].wait_until_ready()
        assert trio.current_time() - began == pytest.approx(HEAD_START)
        assert has(k, SATELLITE)


async def test_measured_head_start_survives_restart(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    how = {"also": [CELLULAR], "fan_out": FanOut.CHEAPEST}
    async with kit(tmp_path, SATELLITE, **how) as k:  # type: ignore[arg-type]
        for _ in range(PACKAGES_MIN):
            await k.post()
            await trio.sleep(2)
            await k.send(channel=CELLULAR)
        id_ = await k.post()
        lines = [(line.channel, line.event, line.detail) for line in k.history(id_)]
        why = "2 s: cheaper channels nearly always deliver within that time"
        assert (SATELLITE, "waits", why) in lines
        began = trio.current_time()
        await trio.sleep(0.5)
    async with kit(tmp_path, SATELLITE, **how) as k:  # type: ignore[arg-type]
        await k.outboxes[SATELLITE].wait_until_ready()
    assert trio.current_time() - began == pytest.approx(2, abs=0.01)


async def test_package_with_deadline_starts_satellite_in_time(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    """This holds with each fan-out, for at most the lifetime of the Package."""
    async with kit(tmp_path, SATELLITE, also=[CELLULAR]) as k:
        for _ in range(PACKAGES_MIN):
            await k.post(channels=["Satellite"])
            await trio.sleep(10)
            await k.send(channel=SATELLITE)
        for limits in ({"by": 600}, {"by": 5000, "timeToLive": 600}):
            id_ = await k.post(**limits)  # type: ignore[arg-type]
            began = trio.current_time()
            await k.outboxes[SATELLITE].wait_until_ready()
            assert trio.current_time() - began == pytest.approx(580)
            await k.send(channel=CELLULAR)
            assert deliveries(k, id_)[SATELLITE] == (Status.CANCELED, "delivered over Cellular")


async def test_next_channel_starts_at_once_without_cheapest_channel(tmp_path: Path) -> None:
    async with kit(tmp_path, SATELLITE, also=[CELLULAR], fan_out=FanOut.CHEAPEST) as k:
        await k.post(channels=["Satellite"])
        assert has(k, SATELLITE)


async def test_next_channel_starts_at_once_after_cheapest_fails(tmp_path: Path) -> None:
    async with kit(tmp_path, SATELLITE, also=[CELLULAR], fan_out=FanOut.CHEAPEST) as k:
        await k.post()
        assert not has(k, SATELLITE)
        await k.send(Outcome.REFUSED, CELLULAR)
        assert has(k, SATELLITE)


async def test_remaining_head_start_survives_restart(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    how = {"also": [CELLULAR], "fan_out": FanOut.CHEAPEST}
    async with kit(tmp_path, SATELLITE, **how) as k:  # type: ignore[arg-type]
        await k.post()
        await trio.sleep(HEAD_START / 2)
    began = trio.current_time()
    async with kit(tmp_path, SATELLITE, **how) as k:  # type: ignore[arg-type]
        await k.outboxes[SATELLITE].wait_until_ready()
    assert trio.current_time() - began == pytest.approx(HEAD_START / 2)


CALLED_OFF = {"incident": {"number": 5, "state": "called off"}, "priority": SOS_PRIORITY - 1}


@pytest.mark.parametrize(
    "document", [{"message": {"content": "help"}, "priority": SOS_PRIORITY}, CALLED_OFF]
)
async def test_sos_and_call_off_use_every_channel_at_once(
    document: dict[str, Any], tmp_path: Path
) -> None:
    async with kit(tmp_path, SATELLITE, also=[CELLULAR], fan_out=FanOut.CHEAPEST) as k:
        id_ = await k.post(**document)
        await k.send(channel=CELLULAR)
        await k.send(channel=SATELLITE)
        assert {status for status, _ in deliveries(k, id_).values()} == {Status.DELIVERED}


async def test_collapse_and_cancel_apply_to_each_channel_separately(tmp_path: Path) -> None:
    async with kit(tmp_path, SATELLITE, also=[CELLULAR]) as k:
        older = await k.post(collapseKey=7)
        in_session = k.load()
        newer = await k.post(collapseKey=7)
        assert deliveries(k, older)[CELLULAR][0] is Status.COLLAPSED
        assert deliveries(k, older)[SATELLITE] == (None, "")
        await k.outbox.settle(in_session, Outcome.SENT)
        assert k.status(older) is Status.DELIVERED
        await k.cancellation.cancel(newer, CELLULAR)
        assert deliveries(k, newer) == {
            CELLULAR: (Status.CANCELED, "by a call"),
            SATELLITE: (None, ""),
        }


async def test_removed_channel_is_reported_as_reason_of_wait(tmp_path: Path) -> None:
    async with kit(tmp_path, SATELLITE, also=[CELLULAR]) as k:
        standing = k.standing(await k.post())
        outboxes = {SATELLITE: k.outboxes[SATELLITE]}
        reasons = WaitReasons(k.journal, k.queues, outboxes, k.endings.clock())
        shown = reasons.describe_deliveries(standing.sequence, standing.deliveries)
        assert shown["Cellular"] == {
            "status": None,
            "reason": "this channel is no longer in the settings: configure it again, or cancel the"
            " Package",
        }
        assert shown["Satellite"]["reason"]
