"""Processes news about incidents: an update about this kit's own incident, or another kit's SOS.

An update changes the state of this kit's incident only if the key that this kit and the hub share
authenticates it. A kit without a hub accepts two kinds of updates without such a proof: a person at
another kit has seen the SOS, or another kit cancels its own SOS. A kit with a hub shows both kinds
as unauthenticated. Another kit's SOS always raises the alarm, even if its date is old. The date
comes from that kit's clock, and a machine without a clock chip is hours behind after a night
without power. If an attacker replays a recorded SOS, it does not raise the alarm again, because the
number of the SOS is already known.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Protocol

from fieldagent.agent.journal import incident
from fieldagent.agent.journal.incident import OWN_STATION, HeardIncident
from fieldagent.package.package import IncidentState, IncidentUpdate, Message, Parcel
from fieldagent.system.elapsed_time import ElapsedTime
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import Entry, Source
from fieldagent.wire.proof import is_update_proved


class ForwardedUpdate(NamedTuple):
    """A message of the hub for another kit: a parcel, or an update about the other kit's incident.
    This kit stores the update too.
    """

    content: IncidentUpdate | Parcel
    at: int
    """Time of the message, in Unix time."""


class ReceivedUpdate(Protocol):
    """The received message that contains the news."""

    now: float
    is_authenticated: bool
    unauthenticated: set[int]
    updates_for_kits: list[ForwardedUpdate]


def get_incident_number(entry: Entry, source: Source | None) -> int:
    """Return the number of the incident to which an item belongs. The number was assigned by the
    kit that raised the incident.
    """
    return (entry.sequence if source is None else source.sequence) - entry.items_back


class IncidentNews:
    """Processes the news in received entries. `station` is this kit's number on the air. Updates
    are authenticated with `keys`.
    """

    def __init__(
        self, station: int = OWN_STATION, keys: Sequence[bytes] = (), *, has_hub: bool = True
    ) -> None:
        self._station = station
        self._keys = keys
        self._has_hub = has_hub

    def store_news(
        self,
        db: sqlite3.Connection,
        origin: int,
        entry: Entry,
        source: Source | None,
        clock: ElapsedTime,
        result: ReceivedUpdate,
    ) -> int | None:
        """Store the news in a new item. If the item is an SOS whose date is far behind this kit's
        trusted clock, return its age in seconds, otherwise None.
        """
        if isinstance(entry.content, IncidentUpdate):
            self._record_update(db, origin, entry, entry.content, source, result)
            return None
        station = -origin if origin < 0 else OWN_STATION if source is None else source.station
        if not entry.sos or station in (OWN_STATION, self._station):
            return None
        now = clock.date(result.now)
        text = entry.content.content if isinstance(entry.content, Message) else ""
        number = get_incident_number(entry, source)
        heard_incident = HeardIncident(station, number, IncidentState.OPEN, entry.time, now, text)
        incident.store_heard_incident(db, heard_incident)
        return incident.compute_shown_age(heard_incident, clock)

    def _record_update(
        self,
        db: sqlite3.Connection,
        origin: int,
        entry: Entry,
        update: IncidentUpdate,
        source: Source | None,
        result: ReceivedUpdate,
    ) -> None:
        speaker = -origin if origin < 0 else OWN_STATION if source is None else source.station
        from_hub = origin >= 0 and source is None
        station = update.station or (OWN_STATION if from_hub else speaker)
        # A kit without a radio does not know its station number at the hub. It recognises its own
        # incident by the number alone, which is possible because each journal starts at a random
        # number.
        unnamed = self._station == OWN_STATION and incident.has_raised(db, update.incident)
        if station == self._station or unnamed:
            station = OWN_STATION
        doubtful = entry.sequence in result.unauthenticated
        by_hub = origin >= 0 and result.is_authenticated and not doubtful
        # Only the hub can verify that another kit's update is about that kit's own incident.
        counts_as_proved = by_hub and (from_hub or station != OWN_STATION)
        if station == OWN_STATION and is_update_proved(update, self._keys):
            counts_as_proved = True
        counts = counts_as_proved or (
            not self._has_hub and self._is_update_allowed(update, station, speaker)
        )
        # Forward the update unchecked: only the addressed kit has the key to check the proof.
        if (by_hub or update.proof) and from_hub and station != OWN_STATION:
            result.updates_for_kits.append(ForwardedUpdate(update, entry.time))
        named_update = IncidentUpdate(
            update.incident, update.state, station, update.by, update.text
        )
        incident.record_update(
            db, named_update, entry.time, result.now, is_proved=counts_as_proved, counts=counts
        )

    def _is_update_allowed(self, update: IncidentUpdate, about: int, speaker: int) -> bool:
        """Return True if a kit without a hub accepts this update from the station `speaker`."""
        if about == OWN_STATION:
            return update.state is IncidentState.SEEN
        return update.state is IncidentState.CALLED_OFF and about == speaker
