"""Admits frames on an APRS frequency, where all stations hear each other. Decisions:

unlisted    from a station that the kit does not know and no setting names
copies      the same frame again, as digipeaters send it
limited     above the rate limit. Frames for the kit and calls for help have a separate limit
taken       all other frames
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from fieldagent.extensions.people.aprs_wire import (
    AprsAnswer,
    AprsEmergency,
    AprsHeard,
    AprsMessage,
    AprsPosition,
)
from fieldagent.system.rate import Rate

COPY, COPY_TO_US = 28.0, 5.0
"""Seconds within which an equal frame is a copy: for any frame, and for a frame to the kit. The
second value is shorter, because a station repeats a message until it is acknowledged."""
REMEMBERED_MAX = 1_000
RATE = Rate(per_minute=60, burst=60)
"""Largest rate of admitted frames from all stations together. Frames for the kit have a separate
limit with the same rate. Each frame causes one or two writes to the journal."""


class FrameAdmission:
    """Admits frames. `admits` returns True if the station with a handle is listed."""

    def __init__(self, admits: Callable[[str], bool]) -> None:
        self._admits = admits
        self._seen: OrderedDict[tuple[str, str, bytes], float] = OrderedDict()
        self._next = {False: 0.0, True: 0.0}

    def judge(self, report: AprsHeard, frame: tuple[str, bytes], callsign: str, now: float) -> str:
        """Return the decision about a frame: `taken`, `unlisted`, `copies` (a repeat) or `limited`.
        `frame` contains the frame's destination and its information field. `callsign` is the kit's
        callsign. `now` is the time in seconds of any monotonic clock.
        """
        if not self._admits(report.source.lower()):
            return "unlisted"
        content = report.what
        to_us = (
            isinstance(content, AprsMessage | AprsAnswer)
            and bool(callsign)
            and content.to == callsign
        )
        key = (report.source, *frame)
        before = self._seen.get(key)
        if before is not None and now < before + (COPY_TO_US if to_us else COPY):
            return "copies"
        calls = isinstance(content, AprsEmergency) or (
            isinstance(content, AprsPosition) and content.emergency
        )
        first = to_us or calls
        self._next[first], wait = RATE.admit(self._next[first], now)
        if wait:
            return "limited"
        self._seen[key] = now
        self._seen.move_to_end(key)
        if len(self._seen) > REMEMBERED_MAX:
            self._seen.popitem(last=False)
        return "taken"
