"""State of `fieldagent track`, which posts positions: its last report, and the interval that a
person chose on the kit's page. The chosen interval survives a restart.
"""

from __future__ import annotations

import logging
from pathlib import Path

from fieldagent.system.folder import replace_file
from fieldagent.system.lazy_named_tuple import NamedTuple

log = logging.getLogger(__name__)

CHOSEN_INTERVAL_FILE = "track-interval"
"""File in the state directory that contains the chosen interval, in whole seconds."""
SHORTEST, LONGEST = 60, 86_400
"""Limits of the chosen interval between two positions at rest, in seconds."""
DEFAULT_INTERVAL_S = 1800.0
"""Interval in seconds that is assumed until a tracker reports its own."""
GAP_INTERVALS = 2.0
"""A time of this many intervals without a position is a gap."""


class TrackerPace(NamedTuple):
    """A tracker's report about its intervals and its next position."""

    interval: float
    """Present number of seconds between two positions while the kit is at rest."""
    moving_interval: float
    satellite_factor: float
    """Factor by which the interval is longer while only satellite is available."""
    batch: int | None
    """Seconds for which positions wait to share a message."""
    costly: bool
    """True while only satellite is available, so that `satellite_factor` applies."""
    moving: bool
    due_at: float | None
    """Latest Unix time of the next position. None before the first position."""
    reported_at: float
    """Unix time of this report."""


class Tracking:
    def __init__(self, state_directory: Path) -> None:
        self._place = state_directory / CHOSEN_INTERVAL_FILE
        self.tracker: TrackerPace | None = None
        self.chosen = _read_stored_interval(self._place)

    def choose(self, interval: int | None) -> None:
        """Store the chosen interval in seconds, and use it when it is on disk. None means that the
        tracker uses its own options. Raises OSError.
        """
        if interval is None:
            self._place.unlink(missing_ok=True)
        else:
            replace_file(self._place, b"%d\n" % interval)
        self.chosen = interval

    def pause(self) -> float:
        """Return the seconds after which missing positions are shown as a gap."""
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
