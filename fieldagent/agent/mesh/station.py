"""This agent's station on the air: its outbox, its reception, and what it relays for its
neighbours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.mesh.neighbours import Neighbours
from fieldagent.agent.mesh.packet import PacketReception
from fieldagent.agent.mesh.reception import RadioReception
from fieldagent.agent.mesh.relay import Relay
from fieldagent.agent.mesh.troubles import AirTroubles
from fieldagent.agent.outbound.budget import Budget
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.outbound.packing import Packing
from fieldagent.agent.outbound.piggyback import RadioPiggyback
from fieldagent.package.package import Channel
from fieldagent.package.payload import Identity


@dataclass(frozen=True, slots=True)
class StationTerms:
    """What the settings say of it."""

    number: int
    name: str
    keys: Sequence[bytes]
    """Those of the group; the first tags what is sent."""
    relays_over: Collection[Channel]
    """Channels to the hub that neighbours may use."""
    credits_per_day: int
    """What they may cost."""
    time_to_live: float
    """Seconds that a neighbour's item waits for its channel."""


@dataclass(frozen=True, slots=True)
class Station:
    number: int
    outbox: ChannelOutbox
    reception: RadioReception
    neighbours: Neighbours
    troubles: AirTroubles


def words_of(
    terms: StationTerms, *, asks_for_relay: Callable[[], bool], clock: Callable[[], float]
) -> RadioPiggyback:
    """What the station says beside Packages."""
    me = Identity(str(terms.number), terms.name or f"station {terms.number}", "Device")
    return RadioPiggyback(terms.number, me, asks_for_relay=asks_for_relay, clock=clock)


def set_up(
    terms: StationTerms,
    journal: Journal,
    inbox: Inbox,
    intake: Intake,
    endings: Endings,
    words: RadioPiggyback,
    queue: ChannelQueue,
    link: ChannelLink,
) -> Station:
    relay = None
    if terms.relays_over:
        relay = Relay(
            terms.relays_over,
            credits_per_day=terms.credits_per_day,
            time_to_live=terms.time_to_live,
            clock=journal.clock,
        )
    key = terms.keys[0] if terms.keys else None
    packing = Packing(journal, queue, key=key, station=terms.number)
    budget = Budget(Channel.RADIO, journal, clock=endings.clock)
    outbox = ChannelOutbox(journal, packing, budget, words, endings, link)
    troubles = AirTroubles(endings.clock)
    packets = PacketReception(
        inbox,
        terms.number,
        keys=terms.keys,
        relay=relay,
        room=packing.whole_room,
        troubles=troubles,
    )
    neighbours = Neighbours(endings.clock)
    reception = RadioReception(journal, packets, neighbours, packing, words, intake, endings)
    return Station(terms.number, outbox, reception, neighbours, troubles)
