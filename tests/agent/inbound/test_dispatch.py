"""Order, independence of senders, the retry schedule, dead letters, and restarts."""

from __future__ import annotations

import json
import logging
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.agent.inbound.hooks import UNREADABLE
from fieldagent.webhook import schedule
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult
from fieldagent.webhook.schedule import DELAY_MAX_S, SCHEDULE, compute_delay, compute_wait
from tests.agent.inbound.spooling import FAILED, HANDED, Hook, now, of, spooled

REFUSED = HandoverResult(HandoverOutcome.REFUSED, "exit 1")
HOUR = 3600.0


async def test_payloads_of_one_sender_are_delivered_in_order(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        hook = Hook(lasts=lambda name: 3.0 if name == "a" else 0.0)
        await s.arrive(*of("ada", "abc"))
        s.start(hook)
        await s.arrive(*of("ada", "d"))
        await trio.sleep(10)
        assert hook.order == ["a", "b", "c", "d"]
        assert set(s.states().values()) == {"handed"}


async def test_failed_payload_blocks_only_same_sender(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        hook = Hook({"a": [FAILED, FAILED, HANDED]})
        await s.arrive(*of("ada", "ab"), *of("bob", "xy"))
        s.start(hook)
        await trio.sleep(60)
        assert sorted(hook.order) == ["a", "a", "x", "y"]
        await trio.sleep(600)
        assert hook.order[-2:] == ["a", "b"]
        assert hook.times("b")[0] >= 300


class Reading(Hook):
    """Reads each payload first. The payload `a` is damaged."""

    async def __call__(self, delivery: Delivery) -> HandoverResult:
        if delivery.request_id == "a":
            json.loads("{")
        return await super().__call__(delivery)


async def test_unreadable_payload_blocks_only_same_sender(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        hook = Reading()
        await s.arrive(*of("ada", "ab"), *of("bob", "xy"))
        s.start(hook)
        await trio.sleep(60)
        assert hook.order == ["x", "y"]
        assert (s.states()["a"], s.reason("a")) == ("waiting", UNREADABLE)


async def test_sos_is_delivered_before_postponed_payloads(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        hook = Hook({"a": [FAILED] * 3, "sos": [FAILED] * 3})
        await s.arrive(*of("ada", "ab"))
        s.start(hook)
        await trio.sleep(60)
        await s.arrive(("sos", "ada"), sos=True)
        await trio.sleep(1)
        await s.arrive(("later", "ada"), sos=True)
        await trio.sleep(1)
        assert hook.order == ["a", "a", "sos", "later"]


@pytest.mark.full
async def test_failed_sos_is_retried_for_three_days(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        hook = Hook({"sos": [FAILED]})
        await s.arrive(("sos", "ada"), sos=True)
        s.start(hook)
        await trio.sleep(HOUR + 120)
        gaps = [later - earlier for earlier, later in pairwise(hook.times("sos"))]
        assert gaps == pytest.approx([5, 60, *[300] * 12], abs=1)
        await trio.sleep(70 * HOUR)
        assert s.states() == {"sos": "waiting"}
        await trio.sleep(3 * HOUR)
        assert s.states() == {"sos": "dead"}


async def test_sos_is_delivered_before_senders_that_wait_for_lane(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        hook = Hook(lasts=lambda name: 10.0)
        await s.arrive(*[(f"r{n}", f"s{n}") for n in range(50)])
        s.start(hook, lanes_max=1)
        await trio.sleep(1)
        await s.arrive(("sos", "s49"), sos=True)
        await trio.sleep(10)
        assert hook.order == ["r0", "sos"]


async def test_sos_is_delivered_alone_beside_slow_calls(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        hook = Hook(lasts=lambda name: 50.0 if name in "abcd" else 5.0)
        await s.arrive(*((name, f"of {name}") for name in "abcd"))
        s.start(hook)
        await trio.sleep(1)
        await s.arrive(("e", "of e"))
        await s.arrive(("sos", "ada"), sos=True)
        await trio.sleep(1)
        assert set(hook.order) == {*"abcd", "sos"}
        await trio.sleep(200)
        assert hook.order[-1] == "e"
    async with spooled(tmp_path / "both") as s:
        hook = Hook(lasts=lambda name: 5.0)
        await s.arrive(("e", "of e"), ("f", "of f"))
        await s.arrive(("sos", "ada"), sos=True)
        s.start(hook)
        await trio.sleep(4)
        assert hook.order == ["sos"], "an ordinary payload overtakes the SOS"
        await trio.sleep(4)
        assert sorted(hook.order) == ["e", "f", "sos"]


async def test_slow_calls_run_in_parallel_up_to_limit(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        hook = Hook(lasts=lambda name: 100.0)
        await s.arrive(*[(f"r{n}", f"s{n % 10}") for n in range(20)])
        s.start(hook, lanes_max=3)
        await trio.sleep(50)
        assert len(hook.calls) == hook.most == 3
        await trio.sleep(1000)
        assert len(hook.calls) == 20
        assert hook.most == 3


async def test_postponed_senders_do_not_occupy_lanes(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    """Fifty senders wait an hour for a retry, and a message of a new sender arrives."""
    async with spooled(tmp_path) as s:
        await s.arrive(*[(f"r{n}", f"s{n}") for n in range(50)])
        for n in range(50):
            await s.spool.postpone(f"r{n}", now() + HOUR, "no route to host")
        hook = Hook()
        s.start(hook, lanes_max=2)
        await trio.sleep(10)
        assert hook.calls == []
        await s.arrive(("new", "somebody"))
        await trio.sleep(10)
        assert hook.order == ["new"]
        await trio.sleep(HOUR)
        assert len(hook.calls) == 51


@pytest.mark.full
async def test_retry_schedule_ends_in_dead_letter_that_can_be_replayed(
    tmp_path: Path, clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with spooled(tmp_path) as s:
        hook = Hook({"a": [FAILED] * len(SCHEDULE) + [HANDED]})
        await s.arrive(*of("ada", "ab"))
        s.start(hook)
        await trio.sleep(100 * HOUR)
        gaps = [later - earlier for earlier, later in pairwise(hook.times("a"))]
        assert gaps == pytest.approx(SCHEDULE[1:], abs=1)
        assert s.states() == {"a": "dead", "b": "handed"}
        assert s.reason("a") == "no route to host; given up after 10 tries"
        assert "`fieldagent inbound replay a` hands it over again" in caplog.text
        await s.replay("a")
        await trio.sleep(1)
        assert s.states()["a"] == "handed"


async def test_refused_payload_is_dead_at_once_and_next_is_delivered(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        await s.arrive(*of("ada", "ab"))
        s.start(hook := Hook({"a": [REFUSED]}))
        await trio.sleep(1)
        assert hook.order == ["a", "b"]
        assert s.states() == {"a": "dead", "b": "handed"}
        assert s.reason("a") == "exit 1"


@pytest.mark.full
@pytest.mark.parametrize(
    ("asked", "waited"), [(0.0, 5), (60.0, 60), (2.0, 5), (10 * 24 * HOUR, 24 * HOUR)]
)
async def test_retry_after_of_receiver_is_respected_up_to_one_day(
    tmp_path: Path, clock: trio.testing.MockClock, asked: float, waited: float
) -> None:
    async with spooled(tmp_path) as s:
        busy = HandoverResult(HandoverOutcome.FAILED, "429 Too Many Requests", retry_after=asked)
        await s.arrive(*of("ada", "a"))
        s.start(hook := Hook({"a": [busy, HANDED]}))
        await trio.sleep(25 * HOUR)
        first, second = hook.times("a")
        assert second - first == pytest.approx(waited, abs=1)


async def test_hook_that_is_gone_is_not_called_until_restart(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    gone = HandoverResult(HandoverOutcome.GONE, "410 Gone")
    async with spooled(tmp_path) as s:
        await s.arrive(*of("ada", "ab"), *of("bob", "x"))
        hook = Hook({"a": [gone]}, lasts=lambda name: 5.0 if name == "x" else 0.0)
        assert await s.dispatch(hook) == "410 Gone"
        assert s.states() == {"a": "waiting", "b": "waiting", "x": "handed"}
        await s.arrive(*of("bob", "y"))
        await trio.sleep(HOUR)
        assert sorted(hook.order) == ["a", "x"]
        s.start(restarted := Hook())
        await trio.sleep(1)
        assert sorted(restarted.order) == ["a", "b", "y"]


async def test_restart_repeats_only_payloads_not_handed_over(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        hook = Hook(lasts=lambda name: HOUR if name == "b" else 0.0)
        await s.arrive(*of("ada", "abc"), *of("bob", "xy"))
        s.start(hook)
        await hook.called(4)
        await trio.sleep(1)
    async with spooled(tmp_path) as s:
        assert s.states() == {k: "waiting" if k in "bc" else "handed" for k in "abcxy"}
        s.start(again := Hook())
        await trio.sleep(1)
        assert again.order == ["b", "c"]


async def test_retry_time_survives_restart(tmp_path: Path, clock: trio.testing.MockClock) -> None:
    async with spooled(tmp_path) as s:
        await s.arrive(*of("ada", "a"))
        s.start(Hook({"a": [FAILED]}))
        await trio.sleep(20)
    async with spooled(tmp_path) as s:
        s.start(again := Hook())
        await trio.sleep(200)
        assert again.calls == []
        await trio.sleep(200)
        assert again.order == ["a"]


class Receiver(Hook):
    """Accepts nothing while it is `away`."""

    away = True

    async def __call__(self, delivery: Delivery) -> HandoverResult:
        taken = await super().__call__(delivery)
        return self.refusal if self.away else taken

    refusal = FAILED


async def test_returning_receiver_gets_all_waiting_payloads_soon(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    """The schedule alone would delay these payloads for hours, and later payloads of the same
    senders too.
    """
    async with spooled(tmp_path) as s:
        receiver = Receiver()
        await s.arrive(*of("ada", "ab"), *of("ben", "c"))
        s.start(receiver, probes=True)
        await trio.sleep(9 * HOUR)
        calls = len(receiver.calls)
        assert calls < 40, "each probe has a cost"
        receiver.away = False
        await s.arrive(*of("ada", "d"))
        await trio.sleep(schedule.MINUTE * 30)
        assert s.states() == dict.fromkeys("abcd", "handed")
        assert sorted(receiver.order[calls:]) == [*"abcd"]
        first = [name for name in receiver.order[calls:] if name in "abd"]
        assert first == [*"abd"]


@pytest.mark.full
async def test_probe_of_receiver_is_not_counted_as_attempt(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        receiver = Receiver()
        await s.arrive(*of("ada", "a"))
        s.start(receiver, probes=True)
        await trio.sleep(sum(SCHEDULE) - 60)
        assert s.states() == {"a": "waiting"}
        await trio.sleep(120)
        assert s.states() == {"a": "dead"}


async def test_receiver_is_probed_when_agent_starts(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        await s.arrive(*of("ada", "ab"), *of("ben", "c"))
        s.start(Receiver(), probes=True)
        await trio.sleep(3 * HOUR)
    async with spooled(tmp_path) as s:
        wrong = Receiver()
        wrong.refusal = HandoverResult(HandoverOutcome.FAILED, "it answered 404")
        s.start(wrong, probes=True)
        await trio.sleep(1)
        assert len(wrong.calls) == 1
        assert s.reason(wrong.order[0]) == "it answered 404"
    async with spooled(tmp_path) as s:
        s.start(again := Hook(), probes=True)
        await trio.sleep(1)
        assert sorted(again.order) == ["a", "b", "c"]


async def test_receiver_with_retry_after_is_not_probed_earlier(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        receiver = Receiver()
        receiver.refusal = HandoverResult(HandoverOutcome.FAILED, "429", retry_after=2 * HOUR)
        await s.arrive(*of("ada", "a"))
        s.start(receiver, probes=True)
        await trio.sleep(8 * HOUR)
        gaps = [later - earlier for earlier, later in pairwise(receiver.times("a"))]
        assert gaps and min(gaps) >= 2 * HOUR


async def test_success_of_other_sender_does_not_hasten_failing_payload(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        hook = Hook({"bad": [FAILED]})
        await s.arrive(("bad", "ada"))
        s.start(hook, probes=True)
        for number in range(30):
            await s.arrive((f"good {number}", "ben"))
            await trio.sleep(60)
        assert s.states()["bad"] == "waiting"
        assert len(hook.times("bad")) <= 6


async def test_handover_is_stored_if_agent_stops_after_hook(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        with trio.CancelScope() as agent:

            async def stops_it(delivery: Delivery) -> HandoverResult:
                agent.cancel()
                return HANDED

            await s.arrive(*of("ada", "a"))
            await s.dispatch(stops_it)  # type: ignore[arg-type]
        assert s.states() == {"a": "handed"}


async def test_ten_thousand_waiting_payloads_are_not_loaded_at_once(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        await s.arrive(*[(f"r{n:05}", f"s{n % 100}") for n in range(10_000)])
        shown = [len(s.spool.get_heads(limit)) for limit in (1, 8, 1000)]
        assert [row.request_id for row in s.spool.get_heads(3)] == ["r00000", "r00001", "r00002"]
        assert shown == [1, 8, 100]
        s.start(hook := Hook())
        await hook.called(200)
        assert hook.most <= 4


async def test_clock_set_back_by_years_does_not_delay_delivery(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        await s.arrive(*of("ada", "a"))
        await s.spool.postpone("a", now() + 10 * HOUR, "no route to host")
        years = 20 * 365 * 24 * HOUR
        s.start(hook := Hook(), clock=lambda: now() - years)
        await trio.sleep(1)
        assert hook.order == ["a"]


async def test_clock_set_forward_is_noticed_within_hour(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    """The network corrects a slow clock: a message that waits until tomorrow is overdue."""
    async with spooled(tmp_path) as s:
        await s.arrive(*of("ada", "a"))
        await s.spool.postpone("a", now() + 20 * HOUR, "no route to host")
        jump = 0.0
        s.start(hook := Hook(), clock=lambda: now() + jump)
        await trio.sleep(60)
        jump = 21 * HOUR
        await trio.sleep(HOUR)
        assert hook.order == ["a"]


async def test_waiting_payload_causes_few_log_lines(
    tmp_path: Path, clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with spooled(tmp_path) as s:
        await s.arrive(*of("ada", "a"))
        s.start(Hook({"a": [FAILED]}))
        await trio.sleep(4 * HOUR)
    assert len(caplog.records) == 5


@given(
    attempts=st.integers(1, 20), asked=st.floats(0, 1e9), chance=st.floats(0, 1, exclude_max=True)
)
def test_retry_delays_stay_within_schedule_and_jitter(
    attempts: int, asked: float, chance: float
) -> None:
    seconds = compute_delay(attempts, schedule=SCHEDULE, retry_after=asked, random_share=chance)
    assert (seconds is None) == (attempts >= len(SCHEDULE))
    if seconds is not None:
        planned = SCHEDULE[attempts]
        assert seconds >= max(planned, min(asked, schedule.RETRY_AFTER_MAX_S))
        assert seconds <= max(planned * (1 + schedule.JITTER_SHARE), schedule.RETRY_AFTER_MAX_S)


@given(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12))
def test_wait_is_between_zero_and_maximum_delay(not_before: float, at: float) -> None:
    assert 0 <= compute_wait(not_before, at) <= DELAY_MAX_S
