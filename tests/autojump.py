"""Lets virtual time jump only when no data is in transit, however busy the machine is.

trio lets a MockClock jump when nothing has arrived for `autojump_threshold` seconds. But a kernel
thread passes on the bytes of a pty and the packets of the loopback. A thread of ours makes a
commit, and a hook is a process. On a busy machine each may take longer than the threshold. Time
would then jump past data that is already there, and deadlines would pass that no real agent misses.
"""

from __future__ import annotations

import os
import select
import tty
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import trio
from trio._core._run import GLOBAL_RUN_CONTEXT
from trio.testing import MockClock

jump = MockClock._autojump
"""trio's original function, which jumps immediately. For tests that use only this thread."""


class _Probe:
    """A separate pty. When its byte has arrived, all data that was written earlier has
    arrived too.
    """

    def __init__(self) -> None:
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)

    def pass_through(self) -> None:
        os.write(self._ours, b"x")
        os.read(self._theirs, 1)


def install() -> None:
    """Replace `MockClock._autojump` in this process. conftest's pytest_configure calls this
    function.
    """
    probe = _Probe()

    def autojump(clock: MockClock) -> None:
        probe.pass_through()
        if not (
            _a_thread_works() or _a_child_works() or _a_packet_waits() or _something_has_come()
        ):
            jump(clock)

    MockClock._autojump = autojump  # type: ignore[method-assign, assignment]


def _a_thread_works() -> bool:
    return trio.to_thread.current_default_thread_limiter().borrowed_tokens > 0


def _a_child_works() -> bool:
    """Return True if a child process runs, or waits for the processor or the disk
    (proc_pid_stat(5)).
    """
    return any(_state(pid) in "RD" for pid in _below(os.getpid()))


def _below(pid: int) -> Iterator[int]:
    with suppress(OSError):  # The thread may have ended meanwhile.
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from _below(int(child))


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return "X"


SOFTNET = Path("/proc/net/softnet_stat")
BACKLOG = 11
"""Column of /proc/net/softnet_stat with the number of waiting packets of one processor, since Linux
5.10."""


def _a_packet_waits() -> bool:
    """Return True if the kernel has loopback packets that have not reached their socket yet."""
    lines = (line.split() for line in SOFTNET.read_text().splitlines())
    return any(int(line[BACKLOG], 16) for line in lines if len(line) > BACKLOG)


def _something_has_come() -> bool:
    """Return True if the trio run has events. Polling the epoll file does not consume them
    (epoll(7)).
    """
    look = select.poll()
    look.register(GLOBAL_RUN_CONTEXT.runner.io_manager._epoll.fileno(), select.POLLIN)
    return bool(look.poll(0))
