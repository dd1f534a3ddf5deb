"""Records facts that help to supervise many kits: the reason of the machine's last start, the
starts of the agent, and the modems' hourly signals. They are stored in a small file in the agent's
state directory, which is written at each start, at each stop and once an hour.

The reason of the last start is the first of these that applies:

1. A command of the hub was carried out in the previous boot: `command`.
2. The agent was stopped properly before that boot ended: `shutdown`, or the power was cut later.
3. Without a proper stop, the hardware's report `power`, `watchdog` or `reset`, else `cut-off`.
4. An earlier boot is not known: `unknown`, unless the hardware reports something.
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
from fieldagent.system.folder import read_slots, write_in_slots
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.kit_condition import (
    CAUSES,
    COMMAND,
    CUT_OFF,
    REPORTED_HOURS,
    SHUTDOWN,
    UNKNOWN,
)
from fieldagent.wire.kit_status import BARS_MAX

log = logging.getLogger(__name__)

NAME = "condition"
HOUR, DAY = 3_600.0, 86_400.0
STARTS_MAX = 100
"""Maximum number of starts that are kept, because the agent may restart every second."""


@dataclass(frozen=True, slots=True)
class LogbookContent:
    """Content of the logbook's file, from this start of the agent and from earlier starts."""

    boot: str = ""
    """The kernel's id of the boot; it is different for each boot."""
    cause: int = UNKNOWN
    """Reason of the boot, one of CAUSES."""
    in_order: bool = False
    """True if the agent was stopped properly since its last start."""
    starts: list[float] = field(default_factory=list)
    """Times of the agent's starts, in elapsed time."""
    hours: dict[str, dict[int, int]] = field(default_factory=dict)
    """Median of the signal bars, by channel, then by the number of the hour in elapsed time."""


class Logbook:
    """Record of the kit's starts and signals, kept in a file. `boot` is the kernel's id of this
    boot, and `now` returns elapsed time. `reset` is the hardware's report on the start.
    `commanded_boots` contains the boots that ended with a command of the hub.
    """

    def __init__(
        self,
        folder: Path,
        boot: str,
        now: Callable[[], float],
        *,
        reset: int,
        commanded_boots: Collection[str],
    ) -> None:
        self._path, self._now = folder / NAME, now
        self._writing = Lock()
        before = _read(self._path)
        at = now()
        cause = before.cause
        if before.boot != boot:
            cause = COMMAND if before.boot in commanded_boots else find_cause(before, reset)
        starts = [*(each for each in before.starts if 0 <= at - each < DAY), at]
        self._content = LogbookContent(boot, cause, False, starts[-STARTS_MAX:], before.hours)

    @property
    def cause(self) -> int:
        """Return the reason of the machine's last start, one of CAUSES."""
        return self._content.cause

    def count_starts(self) -> int:
        """Return the number of starts of the agent in the last 24 hours."""
        at = self._now()
        return sum(at - each < DAY for each in self._content.starts)

    def write_file(self) -> None:
        """Write the file. A failure is only logged. The content is then missing after a restart."""
        try:
            with self._writing:
                document = json.dumps(asdict(self._content), separators=(",", ":"))
                write_in_slots(self._path, document.encode())
        except OSError as error:
            log.warning("the kit's logbook cannot be stored: %s", error)

    def record_stop(self) -> None:
        """Record on disk that the agent stops properly. The next start reads this record."""
        self._content = replace(self._content, in_order=True)
        self.write_file()

    def close_hour(self, links: Mapping[str, ChannelLink], clock: float) -> None:
        """Add the median of the signal in the hour that has just ended, for each link. `clock` is
        the present time on trio's clock.
        """
        hour = round(self._now() / HOUR) - 1
        hours = {name: dict(hour_signals) for name, hour_signals in self._content.hours.items()}
        for name, link in links.items():
            if (bars := compute_median(link.signals, clock - HOUR, clock)) is not None:
                hours.setdefault(name, {})[hour] = bars
        recent = {
            name: {
                each: bars
                for each, bars in hour_signals.items()
                if 0 <= hour - each < REPORTED_HOURS
            }
            for name, hour_signals in hours.items()
        }
        kept = {name: hour_signals for name, hour_signals in recent.items() if hour_signals}
        self._content = replace(self._content, hours=kept)

    def compute_time_to_hour(self) -> float:
        """Return the seconds until this hour of elapsed time is over."""
        return HOUR - self._now() % HOUR

    def compute_signals(
        self, links: Mapping[str, ChannelLink], clock: float
    ) -> dict[str, list[int | None]]:
        """Return the median of the bars for each of the last 24 hours, by the name of the link. The
        list begins with the oldest hour and ends with the current hour; None means an unknown
        signal. Links without any known signal are left out. `clock` is the present time on trio's
        clock.
        """
        hour = int(self._now() // HOUR)
        started_at = clock - self._now() % HOUR
        medians = {}
        for name, link in links.items():
            hour_signals = self._content.hours.get(name, {})
            before = [hour_signals.get(hour - ago) for ago in range(REPORTED_HOURS - 1, 0, -1)]
            hours = [*before, compute_median(link.signals, started_at, clock)]
            if any(bars is not None for bars in hours):
                medians[name] = hours
        return medians


def find_cause(content: LogbookContent, reset: int) -> int:
    """Return the reason of a start that no command of the hub has caused. `reset` is the hardware's
    report.
    """
    if content.in_order:
        return SHUTDOWN
    if reset != UNKNOWN or not content.boot:
        return reset
    return CUT_OFF


def compute_median(
    signals: Iterable[tuple[float, int | None]], start: float, end: float
) -> int | None:
    """Return the median of the bars, weighted by time, over the time in which they were known, or
    None if they were never known. `signals` are pairs of time and bars, each valid until the next.
    """
    weights: dict[int, float] = {}
    for (at, bars), (until, _) in pairwise([*signals, (max(start, end), None)]):
        seconds = min(until, end) - max(at, start)
        if bars is not None and seconds > 0:
            weights[bars] = weights.get(bars, 0.0) + seconds
    half, so_far = sum(weights.values()) / 2, 0.0
    for bars in sorted(weights):
        so_far += weights[bars]
        if so_far >= half:
            return bars
    return None


def _read(path: Path) -> LogbookContent:
    """Return the content of the file. The content is empty if the file is missing or damaged."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        document = json.loads(read_slots(path))
        return LogbookContent(
            str(document["boot"]),
            _read_index(document["cause"], len(CAUSES)),
            document["in_order"] is True,
            [float(each) for each in document["starts"]][-STARTS_MAX:],
            {str(name): _group_by_hour(hours) for name, hours in document["hours"].items()},
        )
    return LogbookContent()


def _read_index(value: Any, end: int) -> int:
    return value if type(value) is int and 0 <= value < end else UNKNOWN


def _group_by_hour(hours: Mapping[str, Any]) -> dict[int, int]:
    bars_by_hour = {int(hour): max(0, min(int(bars), BARS_MAX)) for hour, bars in hours.items()}
    return dict(sorted(bars_by_hour.items())[-REPORTED_HOURS:])
