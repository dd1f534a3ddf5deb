"""Accounting of the CPU seconds that a task causes in other threads, such as a database's."""

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
"""CPU seconds to pass work to a thread and back, without the work itself."""


def nobody(seconds: float) -> None:
    """Do nothing: account for work without a caller."""


_payer: ContextVar[Pay] = ContextVar("_payer", default=nobody)


def charge_to(pay: Pay) -> None:
    """Set the account of this task, and of the tasks that it starts."""
    _payer.set(pay)


def payer() -> Pay:
    """Return the account of this task; `nobody` if it has none."""
    return _payer.get()


async def billed(step: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
    """Run `step` in a thread, charged to this task. A cancelled caller does not wait for the end,
    and is charged then.
    """
    pay, loop = payer(), trio.lowlevel.current_trio_token()

    def run() -> T:
        begun = time.thread_time()
        try:
            return step()
        finally:
            # If the loop has ended, there is no account to charge.
            with suppress(trio.RunFinishedError):
                loop.run_sync_soon(pay, THREAD + time.thread_time() - begun)

    return await trio.to_thread.run_sync(run, limiter=limiter, abandon_on_cancel=True)
