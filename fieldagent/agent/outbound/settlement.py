"""What the end of a transmission means for each Package that was in it. Decides, and changes
nothing: `ChannelOutbox` carries out what comes back.

| how it ended | a whole Package, or its last fragment | another fragment | several Packages |
|---|---|---|---|
| sent | Delivered | waits for its next one | each for itself |
| not sent | waits for the next try | the rest of a burst that was heard goes at once | all wait |
| refused | Error | Error | all wait, and travel alone: each shows which it is |
| refused, and an SOS | waits, longer each time | waits, longer each time | as above |

One status never ends an SOS: a single bit that flips on a serial line makes "no network service" a
refusal.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import field
from math import inf

from fieldagent.agent.journal import history, outbound
from fieldagent.agent.journal.history import REFUSED
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import EndedLeg, Piece, Spent
from fieldagent.agent.outbound.burst import Burst
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.package.delivery import Leg
from fieldagent.package.package import Channel, Status
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.wording import counted
from fieldagent.wire.outcome import Outcome

MAY_HAVE_LEFT = "may have left"
"""What the history says of what nobody has word of."""


@dataclass(slots=True)
class Settlement:
    ended: list[EndedLeg] = field(default_factory=list)
    waits: dict[int, float] = field(default_factory=dict)
    """Packages that wait again, and until when; trio's clock."""
    tried: list[int] = field(default_factory=list)
    """Packages for which it counts as a try in vain."""
    alone: set[int] = field(default_factory=set)
    """Packages that travel alone from here on."""
    event: str = "not sent"
    """What their history says of it."""
    ends_intent: bool = True


REFUSED_PAUSE_S, REFUSED_PAUSE_MAX_S = 30.0, 900.0
"""Seconds until an SOS that was refused is tried again: the first time, and at most."""


def refused_pause(times: int) -> float:
    """Return the seconds until the next try of an SOS that was refused `times` times before."""
    return min(REFUSED_PAUSE_MAX_S, REFUSED_PAUSE_S * 2.0 ** min(times, 10))


def after_success(
    journal: Journal, queue: ChannelQueue, pieces: list[Piece], over: Collection[Piece]
) -> Settlement:
    """Decide what ends and what waits after a transmission has left: a Package is Delivered with
    its last fragment, and with another its next one may go at once. `over` are the pieces with
    which nothing of their Package is under way any more."""
    settlement = Settlement()
    for piece in pieces:
        if _completes(journal, queue, piece):
            leg = Leg(Status.DELIVERED)
            settlement.ended.append(EndedLeg(piece.sequence, queue.channel, leg))
        elif piece in over:
            settlement.waits[piece.sequence] = -inf
    return settlement


def after_failure(
    channel: Channel,
    pieces: list[Piece],
    over: Mapping[Piece, Burst],
    outcome: Outcome,
    reason: str,
    due: float,
    refused_due: float | None = None,
) -> Settlement:
    """Decide what ends and what waits again, until `due`, after a transmission that did not leave.
    Refused together, Packages travel alone from then on; refused alone, one waits until
    `refused_due`, or ends if that is None. `over` are the pieces with which nothing of their
    Package is under way any more, each with its burst."""
    if outcome is Outcome.REFUSED and len(pieces) == 1:
        (sequence,) = (piece.sequence for piece in pieces)
        if refused_due is not None:
            waits = {sequence: refused_due}
            return Settlement(waits=waits, tried=[sequence], alone={sequence}, event=REFUSED)
        ended = EndedLeg(sequence, channel, Leg(Status.ERROR, reason or "refused"))
        return Settlement([ended], tried=[sequence], event=REFUSED)
    alone = {piece.sequence for piece in pieces} if outcome is Outcome.REFUSED else set()
    # Of a burst that was heard in part the rest goes at once.
    waits = {piece.sequence: -inf if burst.heard else due for piece, burst in over.items()}
    tried = [piece.sequence for piece, burst in over.items() if not burst.heard]
    return Settlement(waits=waits, tried=tried, alone=alone)


def _completes(journal: Journal, queue: ChannelQueue, piece: Piece) -> bool:
    """Return whether its Package is at the far side once this piece is."""
    if piece.sequence not in queue:
        # Another fragment has brought the news.
        return False
    if piece.count == 1:
        return True
    if queue.limits.shared:
        return outbound.is_held_whole(journal, queue.channel, piece.sequence)
    held = outbound.fragments_held(journal, queue.channel, piece.sequence, piece.count)
    return len(held.get(outbound.ONLY_PEER, set()) | {piece.position}) == piece.count


def note_sent(
    queue: ChannelQueue, pieces: list[Piece], spent: Spent, now: float
) -> Operation[None]:
    """Write down that it left, in the history of each Package in it."""
    left = outbound.sent(queue.channel, pieces, shared=queue.limits.shared)
    cost = _in_words(spent, len(pieces))

    def store(db: sqlite3.Connection) -> None:
        left(db)
        for piece in pieces:
            detail = _fragment_in_words(piece) + cost
            history.note(db, [piece.sequence], queue.channel, "sent", detail, now)

    return store


def note_tried(
    queue: ChannelQueue, settlement: Settlement, reason: str, now: float
) -> Operation[None]:
    """Count the tries in vain."""
    sequences, event = settlement.tried, settlement.event
    tried = outbound.tried(queue.channel, sequences, ends_intent=settlement.ends_intent)

    def store(db: sqlite3.Connection) -> None:
        tried(db)
        history.note(db, sequences, queue.channel, event, reason, now)

    return store


def note_doubt(channel: Channel, pieces: list[Piece], reason: str, now: float) -> Operation[None]:
    """Write down why it is not known whether it left."""
    sequences = [piece.sequence for piece in pieces]
    return lambda db: history.note(db, sequences, channel, MAY_HAVE_LEFT, reason, now)


def note_copy(channel: Channel, pieces: list[Piece], spent: Spent, now: float) -> Operation[None]:
    """Write down that they go again, and what the copy before may have cost."""
    sequences = [piece.sequence for piece in pieces]
    detail = "nobody can tell whether the copy before left"
    if spent.doubtful:
        detail += f"; it may have cost {counted(spent.doubtful, 'credit')}"
    elif spent.bytes:
        detail += f"; it may have cost {counted(spent.bytes, 'byte')}"
    return lambda db: history.note(db, sequences, channel, "goes again", detail, now)


def _fragment_in_words(piece: Piece) -> str:
    return "" if piece.count == 1 else f"fragment {piece.position + 1} of {piece.count}: "


_CREDITS = re.compile(r", ([0-9]+) credits?(?:, shared by ([0-9]+))?$")


def credits_in_words(cost: str) -> float:
    """Return the credits of what `note_sent` wrote: a Package's part, where several shared them."""
    match = _CREDITS.search(cost)
    return int(match[1]) / int(match[2] or 1) if match else 0.0


def _in_words(spent: Spent, together: int) -> str:
    unit = "credit" if spent.credits == 1 else "credits"
    cost = f", {spent.credits} {unit}" if spent.credits else ""
    shared = f", shared by {together}" if together > 1 else ""
    return f"{spent.bytes} bytes{cost}{shared}"
