"""Who pays for what a task has done in threads of others, such as a database's: the seconds that
these took of a processor."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar

import trio

T = TypeVar("T")
Pay = Callable[[float], None]
THREAD = 0.000_06
"""Seconds that it takes to give a thread something to do and to come back, beside the thing."""


def nobody(seconds: float) -> None:
    """Pay for nothing: what belongs to no caller."""


_payer: ContextVar[Pay] = ContextVar("_payer", default=nobody)


def charge_to(pay: Pay) -> None:
    """Let `pay` be called from here on for this task, and for those that it starts."""
    _payer.set(pay)


def payer() -> Pay:
    """Return what this task calls with the seconds that it owes; `nobody` where none was named."""
    return _payer.get()


async def billed(step: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
    """Run `step` in a thread, at the expense of this task. Whoever is cancelled does not wait for
    its end, and pays then."""
    pay, loop = payer(), trio.lowlevel.current_trio_token()

    def run() -> T:
        begun = time.thread_time()
        try:
            return step()
        finally:
            # Whose loop has ended has nobody left to pay.
            with suppress(trio.RunFinishedError):
                loop.run_sync_soon(pay, THREAD + time.thread_time() - begun)

    return await trio.to_thread.run_sync(run, limiter=limiter, abandon_on_cancel=True)
