"""Bursts: several fragments of one Package that are in flight at the same time. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from fieldagent.agent.journal.records import Segment
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(slots=True)
class Burst:
    waiting: list[int]
    """Positions of the fragments that must still be sent. A more urgent Package is sent first."""
    in_flight: set[int] = field(default_factory=set)
    heard: bool = False
    """True if one of the fragments has left."""


class Bursts(dict[int, Burst]):
    """The burst of each Package, by the Package's sequence."""

    def open(self) -> list[int]:
        """Return the sequences of the Packages whose next fragment may be sent while earlier
        fragments are still in flight.
        """
        return [sequence for sequence, burst in self.items() if burst.waiting]

    def start_segment(self, segment: Segment, positions: list[int]) -> None:
        """Record that the segment is in flight, and that the fragments at the other `positions`
        will follow.
        """
        burst = self.setdefault(segment.sequence, Burst(positions))
        burst.waiting.remove(segment.position)
        burst.in_flight.add(segment.position)

    def finish_segment(self, segment: Segment, *, is_sent: bool) -> Burst | None:
        """Record that a segment is no longer in flight. Return its burst if no other segment of the
        burst is in flight, otherwise None.
        """
        burst = self.get(segment.sequence, Burst([]))
        burst.in_flight.discard(segment.position)
        burst.heard |= is_sent
        if not is_sent:
            # The receiver is missing this fragment: send no more fragments until the burst has
            # ended.
            burst.waiting.clear()
        if burst.in_flight:
            return None
        self.pop(segment.sequence, None)
        return burst

    def finish_segments(
        self, segments: Iterable[Segment], *, is_sent: bool
    ) -> dict[Segment, Burst]:
        """Record that these segments are no longer in flight. Return the finished bursts, each by
        its last segment.
        """
        bursts = {segment: self.finish_segment(segment, is_sent=is_sent) for segment in segments}
        return {segment: burst for segment, burst in bursts.items() if burst is not None}
