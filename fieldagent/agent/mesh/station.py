"""This agent's station on the air: its outbox, its ear, and what it carries for its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import Accepted
from fieldagent.agent.mesh.neighbours import Neighbours
from fieldagent.agent.mesh.relay import Relay
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.outbound.piggyback import AirRiders
from fieldagent.package.package import Channel
from fieldagent.package.payload import Identity


@dataclass(frozen=True, slots=True)
class StationTerms:
    """What the settings say of it."""

    number: int
    name: str
    keys: Sequence[bytes]
    """Those of the group; the first tags what is sent."""
    carries: Collection[Channel]
    """Ways to the hub that neighbours may use."""
    credits_per_day: int
    """What they may cost."""
    time_to_live: float
    """Seconds that a neighbour's item waits for its way."""


@dataclass(frozen=True, slots=True)
class Station:
    outbox: ChannelOutbox
    neighbours: Neighbours


def set_up(
    terms: StationTerms,
    journal: Journal,
    inbox: Inbox,
    intake: Intake,
    *,
    pleads: Callable[[], bool],
    clock: Callable[[], float],
) -> Station:
    """`pleads` tells whether what is sent asks to be carried."""
    me = Identity(str(terms.number), terms.name or f"station {terms.number}", "Device")
    riders = AirRiders(terms.number, me, pleads=pleads, clock=clock)
    carrier = Relay(
        terms.carries,
        riders,
        credits_per_day=terms.credits_per_day,
        time_to_live=terms.time_to_live,
        queue=intake.queue_carried,
    )
    neighbours = Neighbours(
        journal,
        inbox,
        riders,
        terms.number,
        clock=clock,
        keys=terms.keys,
        carrier=carrier if terms.carries else None,
    )
    outbox = ChannelOutbox(
        Channel.RADIO,
        journal,
        neighbours,
        clock=clock,
        end=intake.end,
        key=terms.keys[0] if terms.keys else None,
        riders=riders,
        station=terms.number,
    )
    neighbours.air = outbox

    def tell(known: Accepted) -> None:
        carrier.delivered(known)
        outbox.answer()

    if terms.carries:
        intake.on_carried = tell
    return Station(outbox, neighbours)
