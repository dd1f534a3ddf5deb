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

from fieldagent.agent.inbound.dispatch import UNREADABLE
from fieldagent.webhook import schedule
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult
from fieldagent.webhook.schedule import DELAY_MAX_S, SCHEDULE, compute_delay, wait
from tests.agent.inbound.spooling import FAILED, HANDED, Hook, now, of, spooled

REFUSED = HandoverResult(HandoverOutcome.REFUSED, "exit 1")
HOUR = 3600.0


async def test_one_senders_deliveries_go_in_order(
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


async def test_what_fails_holds_up_its_own_sender_and_no_other(
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


async def test_a_payload_that_cannot_be_read_holds_up_its_own_sender_and_no_other(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        hook = Reading()
        await s.arrive(*of("ada", "ab"), *of("bob", "xy"))
        s.start(hook)
        await trio.sleep(60)
        assert hook.order == ["x", "y"]
        assert (s.states()["a"], s.reason("a")) == ("waiting", UNREADABLE)


async def test_an_sos_waits_for_nothing_that_the_hook_has_put_off(
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
async def test_an_sos_is_tried_every_five_minutes_for_an_hour_and_for_three_days(
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


async def test_an_sos_is_ahead_of_all_who_wait_for_a_place(
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


async def test_an_sos_has_a_place_beside_hooks_that_are_slow_and_goes_alone(
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
        assert hook.order == ["sos"], "what is none would overtake it"
        await trio.sleep(4)
        assert sorted(hook.order) == ["e", "f", "sos"]


async def test_a_slow_call_leaves_room_for_others_up_to_the_limit(
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


async def test_postponed_senders_do_not_take_the_places_of_those_due(
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
async def test_the_schedule_ends_in_a_dead_letter_that_can_be_replayed(
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


async def test_what_is_refused_is_dead_at_once_and_the_next_goes_on(
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
async def test_the_receiver_may_ask_for_more_time_within_a_day(
    tmp_path: Path, clock: trio.testing.MockClock, asked: float, waited: float
) -> None:
    async with spooled(tmp_path) as s:
        busy = HandoverResult(HandoverOutcome.FAILED, "429 Too Many Requests", retry_after=asked)
        await s.arrive(*of("ada", "a"))
        s.start(hook := Hook({"a": [busy, HANDED]}))
        await trio.sleep(25 * HOUR)
        first, second = hook.times("a")
        assert second - first == pytest.approx(waited, abs=1)


async def test_a_hook_that_is_gone_is_called_no_more_and_nothing_is_lost(
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


async def test_a_restart_in_the_middle_repeats_only_what_was_not_handed(
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


async def test_a_retry_keeps_its_time_across_a_restart(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
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


async def test_a_receiver_that_was_away_for_a_night_gets_all_of_it_once_it_is_back(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    """The schedule alone would delay it for hours, and later messages of the same senders behind
    it.
    """
    async with spooled(tmp_path) as s:
        receiver = Receiver()
        await s.arrive(*of("ada", "ab"), *of("ben", "c"))
        s.start(receiver, probes=True)
        await trio.sleep(9 * HOUR)
        calls = len(receiver.calls)
        assert calls < 40, "it costs something to ask"
        receiver.away = False
        await s.arrive(*of("ada", "d"))
        await trio.sleep(schedule.MINUTE * 30)
        assert s.states() == dict.fromkeys("abcd", "handed")
        assert sorted(receiver.order[calls:]) == [*"abcd"]
        first = [name for name in receiver.order[calls:] if name in "abd"]
        assert first == [*"abd"]


@pytest.mark.full
async def test_asking_whether_it_is_back_takes_no_try_away(
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


async def test_a_receiver_that_was_corrected_is_asked_as_the_agent_starts(
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


async def test_who_asks_for_more_time_is_not_asked_before(
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


async def test_one_that_is_never_taken_is_not_asked_for_because_others_are(
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


async def test_stopping_between_the_hooks_end_and_the_disk_hands_nothing_over_twice(
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


async def test_ten_thousand_waiting_are_never_all_in_memory(
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


async def test_a_clock_set_back_by_years_does_not_stop_a_delivery_for_years(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with spooled(tmp_path) as s:
        await s.arrive(*of("ada", "a"))
        await s.spool.postpone("a", now() + 10 * HOUR, "no route to host")
        years = 20 * 365 * 24 * HOUR
        s.start(hook := Hook(), clock=lambda: now() - years)
        await trio.sleep(1)
        assert hook.order == ["a"]


async def test_a_clock_set_forward_is_noticed_within_the_hour(
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


async def test_waiting_is_silent_in_the_logs(
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
def test_delays_stay_within_the_schedule_and_its_jitter(
    attempts: int, asked: float, chance: float
) -> None:
    seconds = compute_delay(attempts, schedule=SCHEDULE, retry_after=asked, random_share=chance)
    assert (seconds is None) == (attempts >= len(SCHEDULE))
    if seconds is not None:
        planned = SCHEDULE[attempts]
        assert seconds >= max(planned, min(asked, schedule.RETRY_AFTER_MAX_S))
        assert seconds <= max(planned * (1 + schedule.JITTER_SHARE), schedule.RETRY_AFTER_MAX_S)


@given(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12))
def test_no_wait_is_negative_or_longer_than_the_longest(not_before: float, at: float) -> None:
    assert 0 <= wait(not_before, at) <= DELAY_MAX_S
