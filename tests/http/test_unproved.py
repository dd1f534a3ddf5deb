"""Unauthenticated callers: each listener charges them, and a crowd from one source does not block
others.
"""

from __future__ import annotations

import ast
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
import trio.testing

import fieldagent
from fieldagent.http.limits import (
    ANONYMOUS_TOTAL_SHARE,
    KNOWN_CALLER,
    WAITING_CONNECTIONS_MAX,
    Limits,
    UnauthenticatedLimit,
)
from fieldagent.http.problem import Problem
from tests.http.serving import HOST, serving

ROOT = Path(fieldagent.__file__).parent
FLOOD, HONEST = "192.0.2.1", "192.0.2.2"
OWN = {
    # Only programs of this machine, which its user trusts.
    "agent/agent.py",
    # One port of loopback for the hub itself, which posts to it.
    "hub/service/synthetic_item.py",
    # The server itself.
    "http/server.py",
}
"""Modules whose listeners need no account for each source, with the reason."""


def opens_a_listener(tree: ast.Module) -> bool:
    """Return True if the module accepts connections."""
    serves = {"serve", "serve_listeners", "accept"}
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "fieldagent.http.server"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in serves - {"serve"}:
            return node.attr != "accept" or ast.unparse(node.value) in ("listener", "sock")
    return "serve" in imported


def test_every_listener_charges_unauthenticated_callers() -> None:
    """The cost is charged to the CPU account of the source: by `UnauthenticatedLimit`, or by `pace`
    in each call of `serve`.
    """
    found = set()
    for path in ROOT.rglob("*.py"):
        name = str(path.relative_to(ROOT))
        tree = ast.parse(path.read_text())
        if name.startswith("extensions/lab/") or not opens_a_listener(tree):
            continue
        found.add(name)
        if name in OWN:
            continue
        text = ast.unparse(tree)
        plain, http = text.count("serve_listeners("), _calls_of_serve(tree)
        assert plain <= text.count("UnauthenticatedLimit("), f"{name} lets strangers in for nothing"
        assert all("limits=" in each for each in http), f"{name} serves without limits"
        assert len(http) <= text.count("pace="), f"{name} serves without CpuPace"
    assert found >= OWN | {
        *("agent/network_page.py", "hub/hub.py", "hub/operator/directip.py"),
        "extensions/tak/lan/service.py",
        "extensions/tak/server/server.py",
    }


def _calls_of_serve(tree: ast.Module) -> list[str]:
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and "serve" in (ast.unparse(node.func), *map(ast.unparse, node.args[:1]))
    ]


async def test_source_with_the_most_connections_is_evicted_first(
    clock: trio.testing.MockClock,
) -> None:
    unproved = UnauthenticatedLimit(4, 20.0)
    ended: list[str] = []

    async def come(address: str, name: str) -> None:
        async with unproved.admit(address):
            await trio.sleep_forever()
        ended.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(come, HONEST, "honest")
        await trio.testing.wait_all_tasks_blocked()
        for number in range(6):
            nursery.start_soon(come, FLOOD, f"flood {number}")
            await trio.testing.wait_all_tasks_blocked()
        assert ended == ["flood 0", "flood 1", "flood 2"]
        await trio.sleep(21)
    assert sorted(ended[3:]) == ["flood 3", "flood 4", "flood 5", "honest"]


async def test_source_is_charged_until_authenticated(clock: trio.testing.MockClock) -> None:
    unproved = UnauthenticatedLimit(100, 20.0)
    async with unproved.admit(FLOOD) as visit:
        visit.spend(ANONYMOUS_TOTAL_SHARE.burst * 2)
    with pytest.raises(Problem) as refused:
        async with unproved.admit(FLOOD):
            pass
    assert refused.value.status == 429
    async with unproved.admit(HONEST) as visit:
        visit.spend(ANONYMOUS_TOTAL_SHARE.burst * 2)
        visit.record_authentication("certificate")
    assert unproved.pace.get_account(ANONYMOUS_TOTAL_SHARE, HONEST).compute_wait() == 0.0
    assert not unproved.pace.get_account(KNOWN_CALLER, "certificate").is_idle


async def test_waiting_connections_of_one_source_are_limited(clock: trio.testing.MockClock) -> None:
    unproved = UnauthenticatedLimit(1_000, 20.0)
    unproved.pace.get_account(ANONYMOUS_TOTAL_SHARE, FLOOD).spend(3_600.0)
    refused: list[float] = []

    async def come() -> None:
        with pytest.raises(Problem):
            async with unproved.admit(FLOOD):
                raise AssertionError("it does not wait for its turn")
        refused.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        began = trio.current_time()
        for _ in range(WAITING_CONNECTIONS_MAX + 5):
            nursery.start_soon(come)
            await trio.testing.wait_all_tasks_blocked()
    assert refused.count(began) == 5


async def test_crowd_of_one_source_does_not_evict_another_source() -> None:
    async with serving(limits=Limits(connections=12)) as server, AsyncExitStack() as stack:
        slow = await stack.enter_async_context(server.client("127.0.0.2"))
        await slow.send(b"GET / HT")
        await trio.testing.wait_all_tasks_blocked(0.02)
        for _ in range(30):
            # Idle connections: they had their answers.
            client = await stack.enter_async_context(server.client())
            assert await client.is_served()
        await slow.send(b"TP/1.1\r\n" + HOST + b"\r\n")
        assert (await slow.answer())[0].status_code == 200
