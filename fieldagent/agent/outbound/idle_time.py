"""How long something has been silent, on a gateway whose clock is set now and then. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import inf
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class IdleTimes(Generic[K]):
    """`looked` is how many seconds may have passed since the look before."""

    def __init__(self, looked: float) -> None:
        self._looked = looked
        self._known: dict[K, tuple[float, float]] = {}
        """When the last sign of it came by the wall clock, and by the steady one."""
        # What was there before us is as old as the clock says; later signs came just now.
        self._oldest = inf

    def measure(self, last: Mapping[K, float], now: float, unix: float) -> dict[K, float]:
        """Return the seconds that each has been silent. `last` is the Unix time of its last sign,
        another one at each sign; `now` is a steady clock, `unix` the one that is set."""
        known = {}
        for key, at in last.items():
            before = self._known.get(key)
            if before is None or before[0] != at:
                before = at, now - min(max(0.0, unix - at), self._oldest)
            known[key] = before
        self._known, self._oldest = known, self._looked
        return {key: now - since for key, (_, since) in known.items()}
