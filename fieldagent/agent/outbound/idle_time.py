"""Measures silence on a gateway whose clock is sometimes set. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import inf
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class IdleTimes(Generic[K]):
    """Measures the silence of each key. `looked` is the longest time in seconds between two calls
    of `measure`.
    """

    def __init__(self, checked_at: float) -> None:
        self._looked = checked_at
        self._known: dict[K, tuple[float, float]] = {}
        """Time of each key's last sign by the wall clock, and by the monotonic clock."""
        # In the first call of `measure`, a sign is as old as the wall clock shows. In later calls,
        # a new sign is at most as old as the previous call.
        self._oldest = inf

    def measure(self, last: Mapping[K, float], now: float, unix: float) -> dict[K, float]:
        """Return the seconds of silence of each key. `last` contains the Unix time of its last
        sign, different for each sign. `now` is a monotonic clock, `unix` the wall clock.
        """
        known = {}
        for key, at in last.items():
            before = self._known.get(key)
            if before is None or before[0] != at:
                before = at, now - min(max(0.0, unix - at), self._oldest)
            known[key] = before
        self._known, self._oldest = known, self._looked
        return {key: now - since for key, (_, since) in known.items()}
