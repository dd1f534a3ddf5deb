"""Fragments of one Package that are on their way together. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from fieldagent.agent.journal.records import Segment
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(slots=True)
class Burst:
    waiting: list[int]
    """Positions that are sent as soon as no more urgent Package waits."""
    in_flight: set[int] = field(default_factory=set)
    heard: bool = False
    """True if a part of it has arrived."""


class Bursts(dict[int, Burst]):
    """Bursts by the sequence of the Package."""

    def open(self) -> list[int]:
        """Return the Packages that may send another fragment before the earlier ones are
        settled.
        """
        return [sequence for sequence, burst in self.items() if burst.waiting]

    def launch(self, segment: Segment, positions: list[int]) -> None:
        """Start with the first of `positions`; the others follow."""
        burst = self.setdefault(segment.sequence, Burst(positions))
        burst.waiting.remove(segment.position)
        burst.in_flight.add(segment.position)

    def land(self, segment: Segment, *, sent: bool) -> Burst | None:
        """Record that a segment is no longer on its way. Return its burst when that was the last
        one, otherwise None.
        """
        burst = self.get(segment.sequence, Burst([]))
        burst.in_flight.discard(segment.position)
        burst.heard |= sent
        if not sent:
            # A station that should receive it does not.
            burst.waiting.clear()
        if burst.in_flight:
            return None
        self.pop(segment.sequence, None)
        return burst

    def land_all(self, segments: Iterable[Segment], *, sent: bool) -> dict[Segment, Burst]:
        """Record that these segments are no longer on their way. Return those that were the last of
        their Package, each with its burst.
        """
        bursts = {segment: self.land(segment, sent=sent) for segment in segments}
        return {segment: burst for segment, burst in bursts.items() if burst is not None}
