"""Where trackers were that a kit hears by a radio of its own, such as stations of APRS.

A kit says so by a waypoint whose author is `tracker:` and what the tracker calls itself. Nothing
proves who sends under a call sign, so nothing that comes this way is an alarm.
"""

from __future__ import annotations

from fieldagent.hub.bridge.contract import Became
from fieldagent.hub.store.contract import Db
from fieldagent.hub.tracker import intake
from fieldagent.hub.tracker.contract import TrackerReport
from fieldagent.package.package import TRACKER, Waypoint, dated
from fieldagent.wire.envelope import Entry

WAY = "APRS"
"""How a tracker was heard of."""


def take_in(db: Db, workspace: int, entry: Entry, now: float) -> bool:
    """Return whether it was the position of a tracker that somebody has added; what is not is a
    waypoint like any other."""
    point, author = entry.content, entry.author
    if not isinstance(point, Waypoint) or not isinstance(author, str) or entry.sos:
        return False
    if not author.startswith(TRACKER):
        return False
    at = dated(point, entry.time)
    place = {"latitude": point.latitude, "longitude": point.longitude}
    report = TrackerReport(author.removeprefix(TRACKER), at, place)
    return intake.take_in(db, workspace, report, now, way=WAY) is not Became.REFUSED
