"""Intervals at which an unanswered incident is announced again, because others may have missed
it.
"""

from __future__ import annotations

from fieldagent.system.lazy_dataclass import dataclass

FIRST_ALERTS_S, LATER_ALERTS_S, OFTEN_FOR = 10.0, 60.0, 6
"""Seconds between two alerts at first, seconds later, and the number of alerts after which the
interval changes."""


def compute_next_alert(times: int) -> float:
    """Return the seconds from the alert with number `times` to the next one."""
    return FIRST_ALERTS_S if times < OFTEN_FOR else LATER_ALERTS_S


@dataclass(slots=True)
class Alarm:
    """Repetition of an alert, or of its end: how often it was sent, and when it is due again (Unix
    time).
    """

    ends: bool = False
    times: int = 0
    due_at: float = 0.0

    def note(self, now: float) -> None:
        """Record that it was sent."""
        self.times += 1
        self.due_at = now + compute_next_alert(self.times)
