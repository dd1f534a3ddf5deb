"""How `fieldagent track` posts positions: what it told last, and the interval that people chose for
it on the kit's page, which outlives a restart."""

from __future__ import annotations

import logging
from pathlib import Path

from fieldagent.system.folder import put_file
from fieldagent.system.lazy_named_tuple import NamedTuple

log = logging.getLogger(__name__)

CHOSEN = "track-interval"
"""The file in the state directory: whole seconds."""
SHORTEST, LONGEST = 60, 86_400
"""Seconds between two positions at rest that may be chosen."""
USUAL = 1800.0
"""The interval of a tracker of which nothing is known."""
GAP = 2.0
"""Times the interval without a position that make a gap."""


class TrackerPace(NamedTuple):
    """What a tracker told."""

    interval: float
    """Seconds between two positions at rest, as it works now."""
    moving_interval: float
    satellite_factor: float
    """How many times longer while only satellite is up."""
    batch: int | None
    """Seconds that positions wait to share a message."""
    costly: bool
    """Only satellite is up."""
    moving: bool
    due: float | None
    """Unix time at which the next position leaves at the latest; None before the first."""
    told: float
    """Unix time of this."""


class Tracking:
    def __init__(self, state_directory: Path) -> None:
        self._place = state_directory / CHOSEN
        self.tracker: TrackerPace | None = None
        self.chosen = _kept(self._place)

    def choose(self, interval: int | None) -> None:
        """Write the chosen interval down, in seconds, on disk before it counts; None leaves it to
        the tracker's own options. Raises OSError."""
        if interval is None:
            self._place.unlink(missing_ok=True)
        else:
            put_file(self._place, b"%d\n" % interval)
        self.chosen = interval

    def pause(self) -> float:
        """Return the seconds without a position from which on it is a gap."""
        pace = self.tracker
        if pace is None:
            return GAP * (self.chosen or USUAL)
        return GAP * pace.interval * (pace.satellite_factor if pace.costly else 1.0)

    def status(self) -> dict[str, float | None]:
        """Return the interval that people chose and the one in use, in seconds, and when the next
        position is due and the tracker told so, in Unix time; None where not known."""
        pace = self.tracker
        return {
            "chosenInterval": self.chosen,
            "interval": None if pace is None else pace.interval,
            "due": None if pace is None else pace.due,
            "told": None if pace is None else pace.told,
        }


def _kept(place: Path) -> int | None:
    try:
        interval = int(place.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("%s is not read, and the tracker's own interval counts: %s", place, error)
        return None
    return interval if SHORTEST <= interval <= LONGEST else None
