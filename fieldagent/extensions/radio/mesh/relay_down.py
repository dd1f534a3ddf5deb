"""Sends the hub's messages by radio to kits that the hub can reach only through this kit.

Incident updates for a neighbour's SOS return over the same route as the SOS, through this kit.
Other messages for a neighbour arrive in a parcel, if the settings allow parcels. Updates and
parcels are tagged with a key that this kit does not have, so this kit cannot forge them.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence

from fieldagent.agent.inbound.incident_news import ForwardedUpdate
from fieldagent.agent.journal import outbound, spending
from fieldagent.agent.journal.records import Spent, StoredPackage
from fieldagent.agent.outbound.budget import compute_day
from fieldagent.agent.outbound.intake import Intake
from fieldagent.extensions.radio.mesh.relay import RELAY_COST_NAME, add_package
from fieldagent.package.package import SOS_PRIORITY, Channel, IncidentUpdate, Package, Parcel
from fieldagent.package.reading import KINDS
from fieldagent.package.writing import get_kind
from fieldagent.system.elapsed_time import ElapsedTime
from fieldagent.wire.envelope import Entry, compute_fingerprint, decode
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)

RETENTION_S = 86_400.0
"""Seconds for which the delivery of a message is tried. A kit that is out of range for longer
requests its messages over another route."""
PRIORITY = SOS_PRIORITY - 1
"""Priority of incident updates, and of parcels that contain an SOS: below an SOS and above all
other items."""


class RelayDown:
    """Puts the hub's messages for other kits into the radio queue. If `brings_parcels` is False,
    parcels are left out.
    """

    def __init__(self, intake: Intake, clock: ElapsedTime, *, brings_parcels: bool) -> None:
        self._intake = intake
        self._clock = clock
        self._brings_parcels = brings_parcels

    def store(
        self, db: sqlite3.Connection, down: Sequence[ForwardedUpdate], now: float
    ) -> list[StoredPackage]:
        """Add to the journal the parcels, and the updates for incidents that this kit relayed.
        When they are on disk, the caller must pass the result to `queue`. `now` is elapsed time.
        """
        entry_results = (self._add_package(db, each, now) for each in down)
        return [each for each in entry_results if each is not None]

    def queue(self, stored_packages: Sequence[StoredPackage]) -> None:
        for each in stored_packages:
            if isinstance(each.package.item, Parcel):
                station = each.package.item.station
                log.info("sending the hub's items for station %d by radio", station)
            self._intake.queue_relayed(each)

    def _add_package(
        self, db: sqlite3.Connection, down: ForwardedUpdate, now: float
    ) -> StoredPackage | None:
        content, seconds, priority = down.content, RETENTION_S, PRIORITY
        if isinstance(content, IncidentUpdate):
            if not outbound.has_relayed(db, content.station, content.incident):
                return None
        else:
            if not self._brings_parcels:
                return None
            if content.minutes is not None:
                seconds = min(seconds, content.minutes * 60.0)
            content = Parcel(content.body, content.station)
            if not _is_urgent(content):
                priority = KINDS[get_kind(content)].priority
        identity = compute_fingerprint(Entry(0, content, down.at))
        if isinstance(content, Parcel):
            if outbound.is_accepted_since(db, identity, start_time=now - RETENTION_S):
                return None
            day = compute_day(spending.read_known_day_in(db), now, self._clock)
            spending.spend(RELAY_COST_NAME, day, Spent(len(content.body)))(db)
        package = Package(content, channels=frozenset({Channel.RADIO}), priority=priority)
        return add_package(db, package, identity, now, now + seconds, down.at)


def _is_urgent(parcel: Parcel) -> bool:
    """Return True if the parcel contains an SOS."""
    try:
        return any(entry.sos for entry in decode(parcel.body).entries)
    except RemoteProtocolError:
        return False
