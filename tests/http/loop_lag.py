"""Measures how long one step of one task blocks the event loop."""

from __future__ import annotations

import gc
import time

import trio

FREEZE = 0.25
"""Maximum seconds of a step here. A step takes at most 0.03 and may take 0.05. Quadratic code took
minutes."""


class LongestStep(trio.abc.Instrument):
    """Measures the longest step of a task in CPU seconds of this thread, which do not depend on
    other programs.
    """

    def __init__(self) -> None:
        # A search through the objects of thousands of other tests is not a step of the server.
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
