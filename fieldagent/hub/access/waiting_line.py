"""A waiting line for expensive work. A few callers work at a time, and a limited number of callers
wait in the order of their priority.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import field
from itertools import count

import trio

from fieldagent.system.lazy_dataclass import dataclass

Claim = tuple[float, ...]
"""Priority in the line. A lower claim comes first. Equal claims keep their order of arrival."""


@dataclass(slots=True, eq=False)
class _WaitingCaller:
    claim: Claim
    number: int
    called: trio.Event = field(default_factory=trio.Event)
    dropped: bool = False

    @property
    def order(self) -> tuple[Claim, int]:
        return self.claim, self.number


class Crowded(Exception):
    """Error: the line is full of callers with a higher priority."""


class WaitingLine:
    def __init__(self, places: int, waiting: int) -> None:
        self._free = places
        self._waiting_max = waiting
        self._line: list[_WaitingCaller] = []
        self._numbers = count()

    @asynccontextmanager
    async def wait_for_place(self, claim: Claim) -> AsyncIterator[None]:
        """Wait for a place and hold it within the block. Raises Crowded if callers with lower
        claims fill the line, now or during the wait.
        """
        if self._free:
            self._free -= 1
        else:
            await self._wait(_WaitingCaller(claim, next(self._numbers)))
        try:
            yield
        finally:
            self._free += 1
            self._call_next()

    async def _wait(self, me: _WaitingCaller) -> None:
        self._line.append(me)
        if len(self._line) > self._waiting_max:
            worst = max(self._line, key=lambda each: each.order)
            self._line.remove(worst)
            worst.dropped = True
            worst.called.set()
        try:
            await me.called.wait()
        except BaseException:
            if me in self._line:
                self._line.remove(me)
            elif not me.dropped:  # This caller already had a place: pass the place on.
                self._free += 1
                self._call_next()
            raise
        if me.dropped:
            raise Crowded

    def _call_next(self) -> None:
        if self._line and self._free:
            self._free -= 1
            first = min(self._line, key=lambda each: each.order)
            self._line.remove(first)
            first.called.set()
