"""How long the event loop is held up by one step of one task."""

from __future__ import annotations

import gc
import time

import trio

FREEZE = 0.25
"""Seconds that a step may take here. It takes 0.03 at most, and may 0.05; what was quadratic took
minutes."""


class LongestStep(trio.abc.Instrument):
    """In seconds of this thread's own CPU time: what else the machine does does not count."""

    def __init__(self) -> None:
        # Looking through what thousands of other tests have left here is no step of the server's.
        gc.collect()
        gc.freeze()
        self.seconds = 0.0
        self.task = ""
        self._begun: float | None = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._begun = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._begun is None:  # it was added in the middle of a step
            return
        took = time.thread_time() - self._begun
        if took > self.seconds:
            self.seconds, self.task = took, task.name
