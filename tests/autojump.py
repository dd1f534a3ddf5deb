"""Virtual time jumps once nothing is on its way any more, however busy the machine is.

trio lets a MockClock jump when nothing has come for `autojump_threshold` seconds. What was written
to a pty is handed over by a thread of the kernel's, and a commit is made by a thread of ours: both
may take longer than that where many want the processor. Time would then jump past what is there
already, and deadlines would pass that no agent misses.
"""

from __future__ import annotations

import os
import select
import tty

import trio
from trio._core._run import GLOBAL_RUN_CONTEXT
from trio.testing import MockClock

_jump = MockClock._autojump


class _Probe:
    """A pty of our own: what was written before its byte has arrived when that has."""

    def __init__(self) -> None:
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)

    def pass_through(self) -> None:
        os.write(self._ours, b"x")
        os.read(self._theirs, 1)


def install() -> None:
    """For every run of trio in this process; conftest's pytest_configure calls it."""
    probe = _Probe()

    def autojump(clock: MockClock) -> None:
        probe.pass_through()
        if not _a_thread_works() and not _something_has_come():
            _jump(clock)

    MockClock._autojump = autojump  # type: ignore[method-assign, assignment]


def _a_thread_works() -> bool:
    return trio.to_thread.current_default_thread_limiter().borrowed_tokens > 0


def _something_has_come() -> bool:
    """An epoll can be polled itself, which takes nothing out of it (epoll(7))."""
    look = select.poll()
    look.register(GLOBAL_RUN_CONTEXT.runner.io_manager._epoll.fileno(), select.POLLIN)
    return bool(look.poll(0))
