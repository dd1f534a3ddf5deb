"""Virtual time does not run ahead of real events."""

from __future__ import annotations

from typing import Any

import trio

COMPUTES = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done"
"""Seconds of work for a shell, much longer than the clock waits before it jumps."""


async def test_virtual_time_waits_for_a_working_child_process(clock: Any) -> None:
    with trio.fail_after(1):
        await trio.run_process(["/bin/sh", "-c", COMPUTES])


async def test_virtual_time_waits_for_a_working_grandchild_process(clock: Any) -> None:
    with trio.fail_after(1):
        await trio.run_process(["/bin/sh", "-c", f"/bin/sh -c '{COMPUTES}'; true"])


async def test_virtual_time_jumps_past_a_sleeping_child_process(clock: Any) -> None:
    with trio.move_on_after(1000) as deadline:
        await trio.run_process(["sleep", "1000"])
    assert deadline.cancelled_caught
