"""Processes of a soak that are killed and restarted, and their complete output."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from tests.processes import Running

R = TypeVar("R", bound=Running)

AGAIN = 1.0
"""Seconds until a failed start is tried again."""
STARTS_MAX = 60
"""Consecutive tries. After that, something hangs."""


class Line(NamedTuple):
    """A JSON line of a process, and the time (monotonic clock) at which it was read."""

    at: float
    told: dict[str, Any]


@dataclass
class Mortal(Generic[R]):
    """A process that is killed and restarted. `may_end` is True if it may end by itself when its
    server ends.
    """

    name: str
    begin: Callable[[], R]
    may_end: bool = False
    running: R | None = None
    killed: list[float] = field(default_factory=list)
    """Times on the monotonic clock. A failed start and an end by itself count."""
    heard: list[Line] = field(default_factory=list)
    _back: float = 0.0
    _failures: int = 0
    _read: int = 0

    @property
    def it(self) -> R:
        assert self.running is not None, f"{self.name} is away"
        return self.running

    def kill(self, down: float, *, gently: bool = False) -> None:
        """End the process, and let it stay down for `down` seconds. SIGTERM if `gently`, otherwise
        SIGKILL.
        """
        if self.running is None:
            return
        self.killed.append(time.monotonic())
        if gently:
            self.running.stop()
        else:
            self.running.kill()
        self._gone(down)

    def _gone(self, down: float) -> None:
        self.listen()
        self.running = None
        self._back = time.monotonic() + down

    def tend(self) -> str:
        """Start it when it is due, and return a description of a fault."""
        if self.running is not None and self.running.process.poll() is not None:
            self.killed.append(time.monotonic())
            self.running.wait()
            said = self.running.output()[-15:]
            self._gone(AGAIN)
            if not self.may_end:
                return f"{self.name} ended by itself: {said}"
        if self.running is None and time.monotonic() >= self._back:
            try:
                self.running, self._read, self._failures = self.begin(), 0, 0
            except (AssertionError, OSError) as error:
                self._failures += 1
                self._back = time.monotonic() + AGAIN
                if self._failures == STARTS_MAX:
                    return f"{self.name} does not start: {error}"
        self.listen()
        return ""

    def listen(self) -> None:
        """Read its output so far."""
        if self.running is None:
            return
        lines = self.running.output()
        now = time.monotonic()
        for line in lines[self._read :]:
            # A killed process may have printed half a line.
            if line.startswith("{") and line.endswith("}"):
                self.heard.append(Line(now, json.loads(line)))
        self._read = len(lines)

    def died_between(self, begin: float, end: float) -> bool:
        return any(begin <= at <= end for at in self.killed)
