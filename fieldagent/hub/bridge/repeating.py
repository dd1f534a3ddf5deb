"""Intervals at which an unanswered incident is announced again, because the receivers may have
missed the first alert.
"""

from __future__ import annotations

from fieldagent.system.lazy_dataclass import dataclass

FIRST_ALERTS_S, LATER_ALERTS_S, OFTEN_FOR = 10.0, 60.0, 6
"""Seconds between two of the first `OFTEN_FOR` alerts, and seconds between two later alerts."""


def compute_next_alert(times: int) -> float:
    """Return the seconds from the alert with number `times` to the next alert."""
    return FIRST_ALERTS_S if times < OFTEN_FOR else LATER_ALERTS_S


@dataclass(slots=True)
class Alarm:
    """State of an alert that is repeated, or of a repeated notice that the alert has ended
    (`ends`). `times` counts the sent copies. `due_at` is the Unix time of the next copy.
    """

    ends: bool = False
    times: int = 0
    due_at: float = 0.0

    def record_sent(self, now: float) -> None:
        """Count one more alert that was sent, and compute the time when the next alert is due."""
        self.times += 1
        self.due_at = now + compute_next_alert(self.times)
