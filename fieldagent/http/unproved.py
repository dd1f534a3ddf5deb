"""Limits of unauthenticated callers at listeners without HTTP: the number of connections, and the
processor time of each source.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from fieldagent.http.address import find_source
from fieldagent.http.limits import CpuPace, PacedVisit
from fieldagent.http.problem import Problem
from fieldagent.system import waits


class UnauthenticatedLimit:
    """Limit of at most `maximum` connections, each for at most `seconds`. `pace.measure_work` must
    be active during the connections.
    """

    def __init__(self, maximum: int, seconds: float) -> None:
        self.pace = CpuPace(cookie="")
        self._maximum = maximum
        self._seconds = seconds
        self._by_source: dict[str, dict[trio.CancelScope, None]] = {}
        """Connections by source, the oldest first."""

    @asynccontextmanager
    async def admit(self, address: str) -> AsyncIterator[PacedVisit]:
        """Charge the source of `address` for the CPU time of the block. The block is cancelled
        after `seconds`, or earlier to make space for another connection. In that case, the source
        with the most connections loses its oldest connection. Raises Problem 429 if the source uses
        too much processor time.
        """
        if self.pace.is_crowded(address):
            raise Problem(429)
        while sum(map(len, self._by_source.values())) >= self._maximum:
            self._end_one()
        source, visit = find_source(address), self.pace.visit(address)
        visit.begin()
        try:
            with waits.move_on_after(self._seconds) as scope:
                self._by_source.setdefault(source, {})[scope] = None
                await visit.wait_for_turn()
                yield visit
        finally:
            self._forget(source, scope)
            visit.end()

    def _end_one(self) -> None:
        source = max(self._by_source, key=lambda each: len(self._by_source[each]))
        oldest = next(iter(self._by_source[source]))
        oldest.cancel()
        self._forget(source, oldest)

    def _forget(self, source: str, scope: trio.CancelScope) -> None:
        connections_left = self._by_source.get(source, {})
        connections_left.pop(scope, None)
        if not connections_left:
            self._by_source.pop(source, None)
