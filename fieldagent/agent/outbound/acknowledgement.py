"""Transmissions on the air that wait for a station's acknowledgement.

A radio does not report who received a packet. So each transmission waits for an acknowledgement of
each Package in it. An acknowledgement of a later transmission shows that an earlier one was missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from math import inf

import trio

from fieldagent.agent.journal.records import Piece
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import Ack

KNOWN_TO_HEAR = 60.0
"""Seconds after a station was heard for which a station counts as listening."""


@dataclass(slots=True)
class _Awaited:
    pieces: list[Piece]
    missing: set[int]
    """Packages in it that no station has confirmed."""
    over: trio.Event = field(default_factory=trio.Event)
    missed: bool = False
    """True if stations have a later transmission, or answered its round without it."""
    left: bool = False
    """True if its round has been transmitted, so that an answer shows everything that arrived."""


class AwaitedAcks:
    """Expected acknowledgements by the transmission's number; a later transmission has a higher
    number.
    """

    def __init__(self) -> None:
        self._awaited: dict[int, _Awaited] = {}
        self._heard_at = -inf

    def expect(self, number: int, pieces: Iterable[Piece]) -> None:
        """Expect the acknowledgements of a packet, by its number, for its content."""
        pieces = list(pieces)
        self._awaited[number] = _Awaited(pieces, {piece.sequence for piece in pieces})

    def drop(self, number: int) -> None:
        """Drop a transmission whose acknowledgement is no longer needed."""
        self._awaited.pop(number, None)

    async def acknowledged(self, number: int) -> bool:
        """Wait until a station has all of it. Return False once it is known to have been missed."""
        awaited = self._awaited.get(number)
        if awaited is None:
            return True
        awaited.left = True
        await awaited.over.wait()
        return not awaited.missed

    def note_heard(self) -> None:
        """Record that a station is in range."""
        self._heard_at = trio.current_time()

    def hear(self, sequence: int, ack: Ack) -> bool:
        """Apply a station's acknowledgement. Return False if no transmission waits for it."""
        with_it = [
            (number, awaited, piece)
            for number, awaited in self._awaited.items()
            for piece in awaited.pieces
            if piece.sequence == sequence
        ]
        last = max((n for n, _, piece in with_it if _covers(ack, piece)), default=0)
        for number, awaited, piece in with_it:
            if _covers(ack, piece):
                awaited.missing.discard(sequence)
            elif number < last or (awaited.left and ack.count == piece.count > 1):
                awaited.missed = True
            if awaited.missed or not awaited.missing:
                awaited.over.set()
        return last > 0

    def somebody_listens(self) -> bool:
        """Return True if a station was heard within KNOWN_TO_HEAR seconds."""
        return trio.current_time() - self._heard_at < KNOWN_TO_HEAR


def _covers(ack: Ack, piece: Piece) -> bool:
    return ack.whole or (ack.count == piece.count and piece.position in ack.arrived)
