"""How often an incident that nobody has answered is told again, where others may have missed it."""

from __future__ import annotations

from fieldagent.system.lazy_dataclass import dataclass

OFTEN, SELDOM, OFTEN_FOR = 10.0, 60.0, 6
"""Seconds between two alerts, and after how many of them they come more rarely."""


def alert_again(times: int) -> float:
    """Return the seconds from the alert that was the `times`th to the next."""
    return OFTEN if times < OFTEN_FOR else SELDOM


@dataclass(slots=True)
class Alarm:
    """How often an alert, or its end, was told, and when it is again (Unix time)."""

    ends: bool = False
    times: int = 0
    due: float = 0.0

    def note(self, now: float) -> None:
        """Note that it was told."""
        self.times += 1
        self.due = now + alert_again(self.times)
