"""Fragments of one Package that are under way together. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from fieldagent.agent.journal.records import Piece
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(slots=True)
class Burst:
    waiting: list[int]
    """Positions that go as soon as nothing more urgent does."""
    flying: set[int] = field(default_factory=set)
    heard: bool = False
    """Something of it has arrived."""


class Bursts(dict[int, Burst]):
    """By the sequence of the Package."""

    def open(self) -> list[int]:
        """Return the Packages of which more goes before what is under way is settled."""
        return [sequence for sequence, burst in self.items() if burst.waiting]

    def launch(self, piece: Piece, positions: list[int]) -> None:
        """Launch the first of `positions`, of which the others follow."""
        burst = self.setdefault(piece.sequence, Burst(positions))
        burst.waiting.remove(piece.position)
        burst.flying.add(piece.position)

    def land(self, piece: Piece, *, sent: bool) -> Burst | None:
        """Note that a piece is under way no more; return the burst that it was part of, once
        nothing of that is."""
        burst = self.get(piece.sequence, Burst([]))
        burst.flying.discard(piece.position)
        burst.heard |= sent
        if not sent:
            # Whoever was to hear it does not.
            burst.waiting.clear()
        if burst.flying:
            return None
        self.pop(piece.sequence, None)
        return burst

    def land_all(self, pieces: Iterable[Piece], *, sent: bool) -> dict[Piece, Burst]:
        """Note that these are under way no more; return those with which nothing of their Package
        is, each with its burst."""
        bursts = {piece: self.land(piece, sent=sent) for piece in pieces}
        return {piece: burst for piece, burst in bursts.items() if burst is not None}
