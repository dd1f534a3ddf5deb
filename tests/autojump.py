"""Virtual time jumps once nothing is on its way any more, however busy the machine is.

trio lets a MockClock jump when nothing has come for `autojump_threshold` seconds. What was written
to a pty is handed over by a thread of the kernel's, as is what waits for its turn on the way to a
socket; a commit is made by a thread of ours, and a hook is a process: each may take longer than
that where many want the processor. Time would then jump past what is there already, and deadlines
would pass that no agent misses.
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
"""At once: for where all that runs is in this one thread."""


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
        if not (
            _a_thread_works() or _a_child_works() or _a_packet_waits() or _something_has_come()
        ):
            jump(clock)

    MockClock._autojump = autojump  # type: ignore[method-assign, assignment]


def _a_thread_works() -> bool:
    return trio.to_thread.current_default_thread_limiter().borrowed_tokens > 0


def _a_child_works() -> bool:
    """One that runs, or waits for the processor or the disk, as proc_pid_stat(5) has it."""
    return any(_state(pid) in "RD" for pid in _below(os.getpid()))


def _below(pid: int) -> Iterator[int]:
    """Children belong to the thread that forked."""
    with suppress(OSError):  # it has ended
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
"""Which number of its lines, one a processor, is of the packets that wait: since Linux 5.10."""


def _a_packet_waits() -> bool:
    """One of this machine's own: what is sent over the loopback is taken to its socket by the
    kernel, later where it has much of that to do."""
    lines = (line.split() for line in SOFTNET.read_text().splitlines())
    return any(int(line[BACKLOG], 16) for line in lines if len(line) > BACKLOG)


def _something_has_come() -> bool:
    """An epoll can be polled itself, which takes nothing out of it (epoll(7))."""
    look = select.poll()
    look.register(GLOBAL_RUN_CONTEXT.runner.io_manager._epoll.fileno(), select.POLLIN)
    return bool(look.poll(0))
