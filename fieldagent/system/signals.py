"""Handles signals that request a program to stop, and sends the signals that end a command that we
started, with all of its child processes.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, TypeVar

import trio

T = TypeVar("T")

StopRequests = trio.MemoryReceiveChannel[signal.Signals]
"""Channel of the received signals, in order."""

RACE_TEXT = "ignored due to race condition"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that stop a program. SIGHUP arrives when a terminal is closed."""


def run_breakable(
    work: Callable[..., Awaitable[T]], *arguments: Any, clock: trio.abc.Clock | None = None
) -> T:
    """Run a command's work under trio, and return its result. Ctrl-C ends the work only while the
    work waits. At other times, it could interrupt a write, and tasks that wait for this write would
    wait forever.
    """
    return trio.run(work, *arguments, clock=clock, restrict_keyboard_interrupt_to_checkpoints=True)


def run_heeding(program: Callable[[StopRequests], Awaitable[None]], *used: signal.Signals) -> None:
    """Run a program under trio, and pass it the signals that request it to stop. `used` contains
    signals that the program uses for another purpose. The program gets these signals even under
    `nohup`.

    After `program` returns, all these signals are ignored until the process exits, so a late signal
    cannot change the exit code. `trio.open_signal_receiver` would deliver unread signals again and
    interrupt the shutdown.
    """
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN and signal.SIGHUP not in used
    trio.run(_run_with_signals, program, STOP_SIGNALS[:-1] if nohup else STOP_SIGNALS)


async def _run_with_signals(
    program: Callable[[StopRequests], Awaitable[None]], numbers: tuple[signal.Signals, ...]
) -> None:
    token = trio.lowlevel.current_trio_token()
    send_channel, receive_channel = trio.open_memory_channel[signal.Signals](inf)

    def note(number: int, frame: object) -> None:
        token.run_sync_soon(send_channel.send_nowait, signal.Signals(number))

    for number in numbers:
        signal.signal(number, note)
    try:
        await program(receive_channel)
    finally:
        _ignore(numbers)


def _ignore(numbers: tuple[signal.Signals, ...]) -> None:
    """Ignore the signals from now on. If a signal arrives during this call, Python reports an
    unraisable error (`PyErr_CheckSignals`), which is suppressed.
    """
    earlier_hook = sys.unraisablehook

    def report_faults(fault: sys.UnraisableHookArgs) -> None:
        if not (isinstance(fault.exc_value, OSError) and str(fault.exc_value).endswith(RACE_TEXT)):
            earlier_hook(fault)

    sys.unraisablehook = report_faults
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


async def stop_at_signal(stop_requests: StopRequests, stopping: trio.Event) -> None:
    """Set the event at the first signal. Runs until cancelled."""
    async for _ in stop_requests:
        stopping.set()


GRACE_S = 5.0
"""Seconds from SIGTERM to SIGKILL, and seconds after that until the wait ends."""
POLL_INTERVAL_S = 0.05
"""Seconds between two checks of a group. There is no notification when the last process of a group
ends."""


async def end_group(process: trio.Process) -> bool:
    """End the group: send SIGTERM, wait for `GRACE_S`, and then send SIGKILL. Return False if a
    process survives, because it runs as another user or waits for a device.
    """
    with trio.CancelScope(shield=True):
        _signal_group(process, signal.SIGTERM)
        with trio.move_on_after(GRACE_S):
            await process.wait()
            while _signal_group(process, 0):
                await trio.sleep(POLL_INTERVAL_S)
        _signal_group(process, signal.SIGKILL)
        with trio.move_on_after(GRACE_S):
            await process.wait()
    return process.returncode is not None


def _signal_group(process: trio.Process, number: int) -> bool:
    """Send a signal to the group. Return False if no process is left in the group."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    # The group still exists, but all its processes run as another user, for example through sudo.
    except PermissionError:
        return True
    return True
