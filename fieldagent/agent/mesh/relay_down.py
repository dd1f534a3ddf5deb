"""Brings down by radio what the hub has for a kit that it reaches by this one alone.

What a person at the hub says of a neighbour's SOS comes down the way that the SOS went up: this kit
brought it there. What else the hub has for a neighbour comes in a parcel, where the settings let
it. Word and parcel bear a proof of a key that this kit does not have: it could have said neither.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence

from fieldagent.agent.inbound.incident_news import GoesDown
from fieldagent.agent.journal import outbound, spending
from fieldagent.agent.journal.records import Accepted, Spent
from fieldagent.agent.mesh.relay import FOR_OTHERS, enter
from fieldagent.agent.outbound.budget import day_at
from fieldagent.agent.outbound.intake import Intake
from fieldagent.package.package import SOS_PRIORITY, Channel, IncidentWord, Package, Parcel
from fieldagent.package.reading import KINDS
from fieldagent.package.writing import kind_of
from fieldagent.system.lived_time import LivedTime
from fieldagent.wire.envelope import Entry, decode, fingerprint
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)

KEPT = 86_400.0
"""Seconds for which it is tried: who is out of earshot for longer asks the hub by another way."""
PRIORITY = SOS_PRIORITY - 1
"""After an SOS, before all else: words about one, and a parcel that holds one."""


class RelayDown:
    """Puts what goes down into the queue of the radio. `brings_parcels`: the settings let it."""

    def __init__(self, intake: Intake, clock: LivedTime, *, brings_parcels: bool) -> None:
        self._intake = intake
        self._clock = clock
        self._brings_parcels = brings_parcels

    def store(self, db: sqlite3.Connection, down: Sequence[GoesDown], now: float) -> list[Accepted]:
        """Enter words about incidents that this kit brought up, and parcels. They go to `queue`
        once they are on disk. `now` is lived time."""
        entered = (self._enter(db, each, now) for each in down)
        return [each for each in entered if each is not None]

    def queue(self, accepted: Sequence[Accepted]) -> None:
        for each in accepted:
            if isinstance(each.package.item, Parcel):
                station = each.package.item.station
                log.info("what the hub has for station %d goes down by radio", station)
            self._intake.queue_relayed(each)

    def _enter(self, db: sqlite3.Connection, down: GoesDown, now: float) -> Accepted | None:
        said, seconds, priority = down.content, KEPT, PRIORITY
        if isinstance(said, IncidentWord):
            if not outbound.has_carried(db, said.station, said.incident):
                return None
        else:
            if not self._brings_parcels:
                return None
            if said.minutes is not None:
                seconds = min(seconds, said.minutes * 60.0)
            said = Parcel(said.body, said.station)
            if not _is_urgent(said):
                priority = KINDS[kind_of(said)].priority
        identity = fingerprint(Entry(0, said, down.at))
        if isinstance(said, Parcel):
            if outbound.was_accepted(db, identity, since=now - KEPT):
                return None
            day = day_at(spending.known_day_in(db), now, self._clock)
            spending.spend(FOR_OTHERS, day, Spent(len(said.body)))(db)
        package = Package(said, channels=frozenset({Channel.RADIO}), priority=priority)
        return enter(db, package, identity, now, now + seconds, down.at)


def _is_urgent(parcel: Parcel) -> bool:
    """Return whether there is an SOS in it."""
    try:
        return any(entry.sos for entry in decode(parcel.body).entries)
    except RemoteProtocolError:
        return False
