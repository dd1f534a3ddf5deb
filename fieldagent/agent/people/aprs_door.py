"""Decides which frames on an APRS frequency are looked at: everybody hears everybody there.

unlisted    of a station that the kit does not know and no setting names
copies      the same frame again, as digipeaters send it
limited     more came than is taken; what is for the kit, or calls for help, counts by itself
taken       the others
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from fieldagent.system.rate import Rate
from fieldagent.wire.aprs import AprsAnswer, AprsEmergency, AprsHeard, AprsMessage, AprsPosition

COPY, COPY_TO_US = 28.0, 5.0
"""Seconds within which the same is a copy. A station repeats a message that was not acknowledged,
and is to hear that it is: what is for the kit is a copy for a shorter time."""
REMEMBERED_MAX = 1_000
RATE = Rate(per_minute=60, burst=60)
"""Frames of all stations together that are looked at, and as many for the kit beside them: each is
a write or two of the journal."""


class AprsDoor:
    """`admits` says of a handle whether its station is listed."""

    def __init__(self, admits: Callable[[str], bool]) -> None:
        self._admits = admits
        self._seen: OrderedDict[tuple[str, str, bytes], float] = OrderedDict()
        self._next = {False: 0.0, True: 0.0}

    def judge(self, heard: AprsHeard, frame: tuple[str, bytes], own: str, now: float) -> str:
        """Return what becomes of a frame, which is its destination and its information. `own` is
        the kit's call; `now` is of any clock that only goes on, in seconds."""
        if not self._admits(heard.source.lower()):
            return "unlisted"
        what = heard.what
        to_us = isinstance(what, AprsMessage | AprsAnswer) and bool(own) and what.to == own
        key = (heard.source, *frame)
        before = self._seen.get(key)
        if before is not None and now < before + (COPY_TO_US if to_us else COPY):
            return "copies"
        calls = isinstance(what, AprsEmergency) or (
            isinstance(what, AprsPosition) and what.emergency
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
