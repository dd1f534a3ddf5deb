"""How a program is asked to stop."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, TypeVar

import trio

T = TypeVar("T")

Asks = trio.MemoryReceiveChannel[signal.Signals]
"""The signals, one after the other."""

RACE = "ignored due to race condition"
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The last comes where a terminal is closed."""


def run_breakable(
    work: Callable[..., Awaitable[T]], *arguments: Any, clock: trio.abc.Clock | None = None
) -> T:
    """Run a command's work under trio, and return what it does. Ctrl-C ends it where it waits, and
    at no line between: whoever waits for what is being written would else wait for ever."""
    return trio.run(work, *arguments, clock=clock, restrict_keyboard_interrupt_to_checkpoints=True)


def run_heeding(program: Callable[[Asks], Awaitable[None]], *used: signal.Signals) -> None:
    """Run it under trio, and hand it what asks it to stop; `used` are those that the program has
    another use for, and gets under `nohup` as well.

    Once it ends they are left alone, until the process is gone: it is under way already, in good
    order, and its exit code tells how it went. `trio.open_signal_receiver` raises again what nobody
    has taken, and that breaks off the end.
    """
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN and signal.SIGHUP not in used
    trio.run(_heed, program, STOPS[:-1] if nohup else STOPS)


async def _heed(
    program: Callable[[Asks], Awaitable[None]], numbers: tuple[signal.Signals, ...]
) -> None:
    token = trio.lowlevel.current_trio_token()
    tell, asks = trio.open_memory_channel[signal.Signals](inf)

    def note(number: int, frame: object) -> None:
        token.run_sync_soon(tell.send_nowait, signal.Signals(number))

    for number in numbers:
        signal.signal(number, note)
    try:
        await program(asks)
    finally:
        _ignore(numbers)


def _ignore(numbers: tuple[signal.Signals, ...]) -> None:
    """Leave them alone from here on. One that comes at this very moment is told by Python as an
    unraisable fault (`PyErr_CheckSignals`), and is none."""
    tell = sys.unraisablehook

    def tell_faults(fault: sys.UnraisableHookArgs) -> None:
        if not (isinstance(fault.exc_value, OSError) and str(fault.exc_value).endswith(RACE)):
            tell(fault)

    sys.unraisablehook = tell_faults
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


async def stop_at_signal(asks: Asks, stopping: trio.Event) -> None:
    """Set the event at the first; run until cancelled."""
    async for _ in asks:
        stopping.set()
