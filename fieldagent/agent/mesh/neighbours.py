"""Where a packet from the air comes in: whose it is, what it answers, and who is to have it.

Everybody in earshot hears everything. In the journal a station counts below zero, so that it is
never taken for one of the hub's numbers.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from fieldagent.agent.inbound.reception import Inbox, Repeater, Taken
from fieldagent.agent.journal import history as story
from fieldagent.agent.journal import inbound, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import Accepted
from fieldagent.agent.mesh.relay import Relay
from fieldagent.agent.outbound.piggyback import AirRiders
from fieldagent.package.package import Channel
from fieldagent.wire.envelope import (
    Ack,
    Entry,
    Envelope,
    Fragment,
    Introduction,
    Receipt,
    RelayRequest,
    Report,
    Source,
    decode,
)
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)

STATIONS_MAX = 1000
"""Stations that are remembered; who says to be more is not believed to be all there."""
AWAY_AFTER = 3600.0
"""Seconds after which a station that was not heard is no neighbour any more."""


class Station(Protocol):
    """The outbox of the air, as an answer concerns it."""

    def answer(self) -> None: ...

    async def heard(self, sequence: int, heard: Ack) -> None: ...

    def try_again(self) -> None: ...


@dataclass(slots=True)
class _Packet:
    """What one packet turned out to hold."""

    station: int
    taken: Taken
    plea: bool = False
    answers: list[tuple[int, Ack]] = field(default_factory=list)
    """What is to be answered: the number of the item, and what of it is here."""
    heard: list[tuple[int, Ack]] = field(default_factory=list)
    """What is told of our own items, and brings them on."""
    overheard: list[tuple[int, Ack]] = field(default_factory=list)
    """What is told of the items of others."""
    carried: list[Accepted] = field(default_factory=list)
    pleaded: set[tuple[int, int]] = field(default_factory=set)
    """Items of which a fragment came with a plea."""
    joined: set[tuple[int, int]] = field(default_factory=set)
    """Items that are whole now."""


class Neighbours:
    """Implements `outbox.Arrivals`. `keys` are those of the group, none where it has none.

    `carrier` is there when this agent carries for others.
    """

    def __init__(
        self,
        journal: Journal,
        inbox: Inbox,
        riders: AirRiders,
        station: int,
        *,
        clock: Callable[[], float],
        keys: Sequence[bytes] = (),
        carrier: Relay | None = None,
    ) -> None:
        self._journal = journal
        self._inbox = inbox
        self._riders = riders
        self._station = station
        self._clock = clock
        self._keys = keys
        self._carrier = carrier
        self._pleaded: set[tuple[int, int]] = set()
        """Items of which a fragment came with a plea."""
        self.heard_at: dict[int, float] = {}
        """Every station that was heard, with the Unix time of the last packet."""
        self.air: Station | None = None

    def _note(self, station: int) -> None:
        self.heard_at.pop(station, None)
        self.heard_at[station] = self._clock()
        while len(self.heard_at) > STATIONS_MAX:
            longest_ago = next(iter(self.heard_at))
            del self.heard_at[longest_ago]
            self._pleaded = {each for each in self._pleaded if each[0] != longest_ago}

    def in_earshot(self) -> list[int]:
        now = self._clock()
        return [each for each, at in self.heard_at.items() if abs(now - at) < AWAY_AFTER]

    async def take_in(self, body: bytes, repeater: Repeater, *, tagged: bool = True) -> None:
        """Damage and packets of strangers to the group are logged, never raised."""
        try:
            envelope = decode(body, keys=self._keys)
        except RemoteProtocolError as error:
            log.warning("a packet of %d bytes could not be read: %s", len(body), error)
            return
        station = envelope.origin
        if station in (0, self._station):
            log.debug("a packet that says to be of station %d went no further", station)
            return
        returned = self._clock() - self.heard_at.get(station, -inf) >= AWAY_AFTER
        self._note(station)
        now = self._clock()
        # A transaction may be carried out anew: each time it begins with nothing.
        packet = await self._journal.persist(
            lambda db: self._store(db, envelope, _Packet(station, Taken(now)))
        )
        await self._inbox.publish(envelope, packet.taken, repeater)
        await self._follow_up(packet, returned)

    async def _follow_up(self, packet: _Packet, returned: bool) -> None:
        """What may be said and done now that all of it is on disk."""
        assert self.air is not None, "the air is told to its neighbours"
        self._pleaded |= packet.pleaded
        self._pleaded -= packet.joined
        for accepted in packet.carried:
            assert self._carrier is not None
            self._carrier.queue(accepted)
        for sequence, heard in packet.answers:
            self._riders.answer(sequence, heard)
        for sequence, heard in packet.overheard:
            self._riders.overhear(sequence, heard)
        for sequence, heard in packet.heard:
            await self.air.heard(sequence, heard)
        if returned:
            log.info("station %d is in earshot", packet.station)
            self.air.try_again()
        if packet.answers:
            self.air.answer()

    def _store(self, db: sqlite3.Connection, envelope: Envelope, packet: _Packet) -> _Packet:
        packet.plea = any(isinstance(entry.content, RelayRequest) for entry in envelope.entries)
        # Who sends is known before what is sent.
        for entry in sorted(envelope.entries, key=_introduces_nobody):
            self._store_entry(db, entry, packet)
        return packet

    def _store_entry(self, db: sqlite3.Connection, entry: Entry, packet: _Packet) -> None:
        content, station = entry.content, packet.station
        if isinstance(content, RelayRequest | Report | Receipt | Source):
            return
        if isinstance(content, Ack):
            if content.station == self._station:
                self._note_heard(db, entry.sequence, content, packet)
            else:
                packet.overheard.append((entry.sequence, content))
        elif isinstance(content, Introduction):
            if entry.sequence == station:
                inbound.introduce(db, -station, content.identity)
        elif isinstance(content, Fragment):
            self._store_fragment(db, entry.sequence, content, packet)
        else:
            self._inbox.store_entry(db, -station, entry, packet.taken)
            packet.answers.append((entry.sequence, Ack(station)))
            self._carry(db, entry, packet)

    def _store_fragment(
        self, db: sqlite3.Connection, sequence: int, part: Fragment, packet: _Packet
    ) -> None:
        station = packet.station
        if packet.plea:
            packet.pleaded.add((station, sequence))
        whole = self._inbox.store_fragment(db, -station, sequence, part, packet.taken)
        if whole is None:
            arrived = inbound.arrived_of(db, inbound.FragmentedItem(-station, sequence, part.count))
            everything = frozenset(range(part.count))
            packet.answers.append((sequence, Ack(station, part.count, arrived or everything)))
            return
        packet.answers.append((sequence, Ack(station, part.count, frozenset(range(part.count)))))
        packet.plea = packet.plea or (station, sequence) in self._pleaded
        packet.joined.add((station, sequence))
        for entry in whole:
            self._inbox.store_entry(db, -station, entry, packet.taken)
            self._carry(db, entry, packet)

    def _carry(self, db: sqlite3.Connection, entry: Entry, packet: _Packet) -> None:
        if packet.plea and self._carrier is not None:
            accepted = self._carrier.store(db, packet.station, entry, packet.taken.now)
            if accepted is not None:
                packet.carried.append(accepted)

    def _note_heard(
        self, db: sqlite3.Connection, sequence: int, heard: Ack, packet: _Packet
    ) -> None:
        station, now = packet.station, packet.taken.now
        if heard.by_hub:
            text = f"station {station} brought it to the hub"
            story.note(db, [sequence], Channel.RADIO, "carried", text, now)
        if heard.whole:
            outbound.note_receipt(db, sequence, -station, now)
        news = outbound.note_held(db, Channel.RADIO, sequence, station, heard.count, heard.arrived)
        if heard.whole or news:
            packet.heard.append((sequence, heard))


def _introduces_nobody(entry: Entry) -> bool:
    return not isinstance(entry.content, Introduction)
