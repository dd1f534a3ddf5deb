"""State of `fieldagent track`, which posts positions: its last report, and the interval that people
chose on the kit's page. The interval is kept across a restart.
"""

from __future__ import annotations

import logging
from pathlib import Path

from fieldagent.system.folder import replace_file
from fieldagent.system.lazy_named_tuple import NamedTuple

log = logging.getLogger(__name__)

CHOSEN_INTERVAL_FILE = "track-interval"
"""File in the state directory; it contains whole seconds."""
SHORTEST, LONGEST = 60, 86_400
"""Limits of the chosen interval between two positions at rest, in seconds."""
DEFAULT_INTERVAL_S = 1800.0
"""Interval in seconds if a tracker has not reported."""
GAP_INTERVALS = 2.0
"""Number of intervals without a position that count as a gap."""


class TrackerPace(NamedTuple):
    """A tracker's report about itself."""

    interval: float
    """Seconds between two positions at rest, now in use."""
    moving_interval: float
    satellite_factor: float
    """Factor on the interval while only satellite is available."""
    batch: int | None
    """Seconds for which positions wait to share a message."""
    costly: bool
    """True while only satellite is available, so that `satellite_factor` applies."""
    moving: bool
    due_at: float | None
    """Latest Unix time of the next position; None before the first."""
    reported_at: float
    """Unix time of this report."""


class Tracking:
    def __init__(self, state_directory: Path) -> None:
        self._place = state_directory / CHOSEN_INTERVAL_FILE
        self.tracker: TrackerPace | None = None
        self.chosen = _read_stored_interval(self._place)

    def choose(self, interval: int | None) -> None:
        """Store the chosen interval in seconds, and use it once it is on disk. With None, the
        tracker uses its own options. Raises OSError.
        """
        if interval is None:
            self._place.unlink(missing_ok=True)
        else:
            replace_file(self._place, b"%d\n" % interval)
        self.chosen = interval

    def pause(self) -> float:
        """Return the number of seconds without a position that counts as a gap."""
        pace = self.tracker
        if pace is None:
            return GAP_INTERVALS * (self.chosen or DEFAULT_INTERVAL_S)
        return GAP_INTERVALS * pace.interval * (pace.satellite_factor if pace.costly else 1.0)

    def get_status(self) -> dict[str, float | None]:
        """Return the chosen interval and the interval in use, in seconds. Also return the Unix
        times of the next position and of the report. Unknown values are None.
        """
        pace = self.tracker
        return {
            "chosenInterval": self.chosen,
            "interval": None if pace is None else pace.interval,
            "due": None if pace is None else pace.due_at,
            "reportedAt": None if pace is None else pace.reported_at,
        }


def _read_stored_interval(place: Path) -> int | None:
    try:
        interval = int(place.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read, so the tracker's own interval is used: %s", place, error)
        return None
    return interval if SHORTEST <= interval <= LONGEST else None
