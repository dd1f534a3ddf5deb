"""The order in a short queue, and the callers that must leave it."""

from __future__ import annotations

import trio
import trio.testing

from fieldagent.hub.access.passwords import Claim, Crowded, WaitingLine


async def test_best_claim_is_served_first_and_worst_leaves_a_full_queue() -> None:
    line, order, go_on = WaitingLine(1, 4), list[str](), trio.Event()

    async def come(name: str, *claim: float) -> None:
        try:
            async with line.wait_for_place(claim):
                order.append(name)
                await go_on.wait()
        except Crowded:
            order.append(f"not {name}")

    claims: dict[str, Claim] = {
        "first": (9,),
        "late": (5,),
        "worst": (8,),
        "equal": (5,),
        "owner": (0,),
        "better": (1,),
        "too late": (8,),
    }
    async with trio.open_nursery() as nursery:
        for name, claim in claims.items():
            nursery.start_soon(come, name, *claim)
            await trio.testing.wait_all_tasks_blocked()
        assert order == ["first", "not worst", "not too late"]
        go_on.set()
    assert order[3:] == ["owner", "better", "late", "equal"]


async def test_cancelled_waiter_frees_its_place() -> None:
    line, served = WaitingLine(1, 3), 0
    async with trio.open_nursery() as nursery:
        scopes = [trio.CancelScope() for _ in range(4)]

        async def come(scope: trio.CancelScope) -> None:
            nonlocal served
            with scope:
                async with line.wait_for_place((0,)):
                    served += 1
                    await trio.sleep_forever()

        for scope in scopes:
            nursery.start_soon(come, scope)
            await trio.testing.wait_all_tasks_blocked()
        scopes[1].cancel()
        # Called, and cancelled before they run.
        scopes[0].cancel()
        await trio.lowlevel.checkpoint()
        scopes[2].cancel()
        await trio.testing.wait_all_tasks_blocked()
        scopes[3].cancel()
    assert served >= 2
    async with line.wait_for_place((0,)):
        pass
