"""Positions of trackers that a kit hears by a radio of its own, such as APRS stations.

The kit sends a waypoint whose author is `tracker:` and the tracker's own id. A call sign is not
authenticated, so these reports never raise an alarm.
"""

from __future__ import annotations

from fieldagent.hub.bridge.contract import Became
from fieldagent.hub.store.contract import Db
from fieldagent.hub.tracker import intake
from fieldagent.hub.tracker.contract import TrackerReport
from fieldagent.package.package import TRACKER, Waypoint, dated
from fieldagent.wire.envelope import Entry

WAY = "APRS"
"""Bearer shown for such a tracker."""


def take_in(db: Db, workspace: int, entry: Entry, now: float) -> bool:
    """Store the position of a known tracker, and return True. Return False for everything else,
    which is then an ordinary waypoint.
    """
    point, author = entry.content, entry.author
    if not isinstance(point, Waypoint) or not isinstance(author, str) or entry.sos:
        return False
    if not author.startswith(TRACKER):
        return False
    at = dated(point, entry.time)
    place = {"latitude": point.latitude, "longitude": point.longitude}
    report = TrackerReport(author.removeprefix(TRACKER), at, place)
    return intake.take_in(db, workspace, report, now, way=WAY) is not Became.REFUSED
