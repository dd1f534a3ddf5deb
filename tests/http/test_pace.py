"""The callers that wait for their turn, and those that do not, with a jumping clock."""

from __future__ import annotations

import itertools
import time

import pytest
import trio
import trio.testing

from fieldagent.http import limits
from fieldagent.http.limits import (
    ANONYMOUS_SHARE,
    ANONYMOUS_TOTAL_SHARE,
    KNOWN_CALLER,
    TURN_WAIT_MAX_S,
    CallerAccount,
    CpuPace,
)
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem


def make_head(path: str = "/", peer: str = "192.0.2.1", **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request("GET", path, (), named, peer=peer)


def make_pace() -> CpuPace:
    return CpuPace(cookie="session", probes=("/healthz",))


async def test_burst_is_free_and_further_work_waits_for_its_core_share(
    clock: trio.testing.MockClock,
) -> None:
    account = CallerAccount(ANONYMOUS_SHARE)
    account.spend(ANONYMOUS_SHARE.burst - 0.001)
    assert account.can_continue()
    account.spend(0.031)
    assert account.compute_wait() == pytest.approx(0.03 / ANONYMOUS_SHARE.core)
    begun = trio.current_time()
    await account.wait_for_turn()
    assert (
        0.0 <= trio.current_time() - begun - 0.03 / ANONYMOUS_SHARE.core <= limits.RECHECK_AFTER_S
    )
    await trio.sleep(3600)
    account.spend(ANONYMOUS_SHARE.burst - 0.001)
    assert account.can_continue()


async def test_waiting_caller_is_served_even_if_each_check_is_costly(
    monkeypatch: pytest.MonkeyPatch, clock: trio.testing.MockClock
) -> None:
    """A check of 1 ms costs 33 ms of waiting, which once caused the next check without end."""
    steps = itertools.count()
    monkeypatch.setattr(time, "thread_time", lambda: next(steps) * 0.001)
    everybody = make_pace()
    with everybody.measure_work():
        visit = everybody.visit("192.0.2.1")
        visit.begin()
        visit.record_request(make_head())
        visit.spend(ANONYMOUS_SHARE.burst + ANONYMOUS_SHARE.core)
        begun = trio.current_time()
        await visit.wait_for_turn()
        assert 1.0 <= trio.current_time() - begun <= 2.0
        visit.end()


async def test_turns_are_first_come_first_served_and_limited(clock: trio.testing.MockClock) -> None:
    account = CallerAccount(ANONYMOUS_SHARE)
    account.spend(ANONYMOUS_SHARE.burst + 2 * ANONYMOUS_SHARE.core)
    order: list[int] = []

    async def wait(number: int) -> None:
        try:
            await account.wait_for_turn()
            account.spend(2 * ANONYMOUS_SHARE.core)
            order.append(number)
        except Problem as problem:
            assert problem.status == 429
            assert "Retry-After" in dict(problem.headers)
            order.append(-number)

    async with trio.open_nursery() as nursery:
        for number in range(1, 5):
            nursery.start_soon(wait, number)
            await trio.testing.wait_all_tasks_blocked()
    assert trio.current_time() == pytest.approx(TURN_WAIT_MAX_S, abs=0.1)
    assert order[:2] == [1, 2]
    assert sorted(order[2:]) == [-4, -3]
    assert account.waiting == 0


async def test_caller_account_is_chosen_by_address_and_credentials(
    clock: trio.testing.MockClock,
) -> None:
    asked = make_pace()
    stranger = asked.find_account(make_head())
    assert asked.find_account(make_head(peer="192.0.2.2")) is not stranger
    near, far = (asked.find_account(make_head(peer=f"2001:db8::{n}:1:1:1:1")) for n in (0, 1))
    assert near is asked.find_account(make_head(peer="2001:db8::5:5:5:5"))
    assert far is not near
    assert asked.find_account(make_head("/healthz")) is not stranger
    with_key = make_head(x_api_key="key_1")
    assert asked.find_account(with_key) is stranger
    asked.remember(with_key)
    known = asked.find_account(with_key)
    assert known is not stranger
    assert asked.find_account(make_head(peer="192.0.2.9", x_api_key="key_1")) is known
    cookie = make_head(cookie="session=abc")
    asked.remember(cookie)
    assert asked.find_account(cookie) not in (stranger, known)
    asked.forget(with_key)
    assert asked.find_account(with_key) is stranger
    asked.remember(make_head())
    assert asked.find_account(make_head()) is stranger


async def test_number_of_remembered_callers_is_limited(
    monkeypatch: pytest.MonkeyPatch, clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(limits, "ACCOUNTS", 10)
    monkeypatch.setattr(limits, "KNOWN_CREDENTIALS_MAX", 10)
    asked = make_pace()
    busy = asked.get_account(ANONYMOUS_TOTAL_SHARE, "busy")
    busy.spend(1.0)
    for number in range(100):
        asked.visit(f"192.0.2.{number}")
        asked.remember(make_head(x_api_key=f"key_{number}"))
        await trio.sleep(0.1)
    assert len(asked._accounts) <= 10 + 1
    assert len(asked._known_credentials) == 10
    assert asked.get_account(ANONYMOUS_TOTAL_SHARE, "busy") is busy


async def test_work_is_charged_to_the_causing_visit() -> None:
    asked = make_pace()
    with asked.measure_work():

        async def work(address: str) -> None:
            visit = asked.visit(address)
            visit.begin()
            await trio.lowlevel.checkpoint()
            if address:
                sum(range(3_000_000))
            await trio.lowlevel.checkpoint()
            visit.end()

        async with trio.open_nursery() as nursery:
            for address in ("192.0.2.1", "192.0.2.2", ""):
                nursery.start_soon(work, address)
        for address in ("192.0.2.1", "192.0.2.2"):
            account = asked.get_account(ANONYMOUS_TOTAL_SHARE, address)
            account.spend(ANONYMOUS_TOTAL_SHARE.burst)
            assert account.compute_wait() > 0.005 / ANONYMOUS_TOTAL_SHARE.core
        assert not asked._charged


async def test_authenticated_caller_pays_for_its_own_connections(
    clock: trio.testing.MockClock,
) -> None:
    """A program that opens a new connection for each call is not limited by the share of anonymous
    callers.
    """
    asked = make_pace()
    call = make_head(x_api_key="key_1")
    for _ in range(100):
        visit = asked.visit("192.0.2.1")
        visit.begin()
        visit.spend(ANONYMOUS_TOTAL_SHARE.burst / 10)
        visit.record_request(call)
        visit.record_admission(call, "ada")
        visit.end()
    assert asked.get_account(ANONYMOUS_TOTAL_SHARE, "192.0.2.1").can_continue()
    known = asked.find_account(call)
    known.spend(KNOWN_CALLER.burst - 9 * ANONYMOUS_TOTAL_SHARE.burst)
    assert known.compute_wait() > 0
    stranger = asked.visit("192.0.2.1")
    stranger.begin()
    stranger.spend(1.1 * ANONYMOUS_TOTAL_SHARE.burst)
    stranger.record_request(make_head())
    stranger.record_admission(make_head(), None)
    stranger.end()
    assert not asked.get_account(ANONYMOUS_TOTAL_SHARE, "192.0.2.1").can_continue()
