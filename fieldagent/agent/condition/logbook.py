"""What a kit remembers of itself for who looks after many: why its machine was started last, when
its agent began, and how its modems heard by the hour. A small file in the agent's state directory,
written in place at a start, at an end and once an hour.

Why it was started, by the first of these that holds:

1. The hub's command was carried out in the boot before: `command`.
2. The agent was stopped in order before that boot ended: `shutdown`, or its power was cut after.
3. It was not. The hardware says `power`, `watchdog` or `reset`; where it says nothing, `cut-off`.
4. No earlier boot is known: `unknown`, unless the hardware says something.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, field, replace
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.system.folder import put_in_slots, read_slots
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.kit_condition import CAUSES, COMMAND, CUT_OFF, HOURS, SHUTDOWN, UNKNOWN
from fieldagent.wire.kit_status import BARS

log = logging.getLogger(__name__)

NAME = "condition"
HOUR, DAY = 3_600.0, 86_400.0
STARTS_KEPT = 100
"""Of the agent; one that is started anew each second keeps no more."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """As it is on disk."""

    boot: str = ""
    """The kernel's id of the boot; another after each."""
    cause: int = UNKNOWN
    """Why that was, one of CAUSES."""
    in_order: bool = False
    """The agent was stopped in order since it began the last time."""
    starts: list[float] = field(default_factory=list)
    """When it began, lived time."""
    hours: dict[str, dict[int, int]] = field(default_factory=dict)
    """By channel and lived hour, the median of its bars."""


class Logbook:
    """`boot` is the kernel's id of this one, `now` tells lived time; `reset` is what the hardware
    says of the start, `commanded` are the boots that the hub's command ended."""

    def __init__(
        self,
        folder: Path,
        boot: str,
        now: Callable[[], float],
        *,
        reset: int,
        commanded: Collection[str],
    ) -> None:
        self._path, self._now = folder / NAME, now
        self._writing = Lock()
        before = _read(self._path)
        at = now()
        cause = before.cause
        if before.boot != boot:
            cause = COMMAND if before.boot in commanded else cause_of(before, reset)
        starts = [*(each for each in before.starts if 0 <= at - each < DAY), at]
        self._known = Remembered(boot, cause, False, starts[-STARTS_KEPT:], before.hours)

    @property
    def cause(self) -> int:
        """Return why the machine was started last, one of CAUSES."""
        return self._known.cause

    def starts(self) -> int:
        """Return how often the agent has begun in the last 24 hours."""
        at = self._now()
        return sum(at - each < DAY for each in self._known.starts)

    def keep(self) -> None:
        """Write it down; what a disk takes not is told in the log, and missing after a start."""
        try:
            with self._writing:
                known = json.dumps(asdict(self._known), separators=(",", ":"))
                put_in_slots(self._path, known.encode())
        except OSError as error:
            log.warning("what this kit remembers of itself cannot be kept: %s", error)

    def leave(self) -> None:
        """Write down that the agent stops in order."""
        self._known = replace(self._known, in_order=True)
        self.keep()

    def close_hour(self, links: Mapping[str, ChannelLink], clock: float) -> None:
        """Add the hour that has just ended to those of each link, by `clock`, which is trio's."""
        hour = round(self._now() / HOUR) - 1
        hours = {name: dict(known) for name, known in self._known.hours.items()}
        for name, link in links.items():
            if (bars := median(link.signals, clock - HOUR, clock)) is not None:
                hours.setdefault(name, {})[hour] = bars
        recent = {
            name: {each: bars for each, bars in known.items() if 0 <= hour - each < HOURS}
            for name, known in hours.items()
        }
        kept = {name: known for name, known in recent.items() if known}
        self._known = replace(self._known, hours=kept)

    def to_hour(self) -> float:
        """Return the seconds until this lived hour is over."""
        return HOUR - self._now() % HOUR

    def signals(
        self, links: Mapping[str, ChannelLink], clock: float
    ) -> dict[str, list[int | None]]:
        """Return by link, where something is known, the medians of 23 hours and of the one that
        runs."""
        hour = int(self._now() // HOUR)
        began = clock - self._now() % HOUR
        medians = {}
        for name, link in links.items():
            known = self._known.hours.get(name, {})
            before = [known.get(hour - ago) for ago in range(HOURS - 1, 0, -1)]
            hours = [*before, median(link.signals, began, clock)]
            if any(bars is not None for bars in hours):
                medians[name] = hours
        return medians


def cause_of(before: Remembered, reset: int) -> int:
    """Return why a machine was started that no command started; `reset` is the hardware's word."""
    if before.in_order:
        return SHUTDOWN
    if reset != UNKNOWN or not before.boot:
        return reset
    return CUT_OFF


def median(signals: Iterable[tuple[float, int | None]], begin: float, end: float) -> int | None:
    """Return the bars below which a link was for half of the time in which they were known; None
    where they never were. Each of `signals`, moment and bars, stands until the next."""
    weights: dict[int, float] = {}
    for (at, bars), (following, _) in pairwise([*signals, (max(begin, end), None)]):
        seconds = min(following, end) - max(at, begin)
        if bars is not None and seconds > 0:
            weights[bars] = weights.get(bars, 0.0) + seconds
    half, so_far = sum(weights.values()) / 2, 0.0
    for bars in sorted(weights):
        so_far += weights[bars]
        if so_far >= half:
            return bars
    return None


def _read(path: Path) -> Remembered:
    """Nothing of what is damaged."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        document = json.loads(read_slots(path))
        return Remembered(
            str(document["boot"]),
            _within(document["cause"], len(CAUSES)),
            document["in_order"] is True,
            [float(each) for each in document["starts"]][-STARTS_KEPT:],
            {str(name): _hours(hours) for name, hours in document["hours"].items()},
        )
    return Remembered()


def _within(value: Any, end: int) -> int:
    return value if type(value) is int and 0 <= value < end else UNKNOWN


def _hours(hours: Mapping[str, Any]) -> dict[int, int]:
    known = {int(hour): max(0, min(int(bars), BARS)) for hour, bars in hours.items()}
    return dict(sorted(known.items())[-HOURS:])
