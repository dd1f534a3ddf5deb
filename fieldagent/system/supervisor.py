"""Keeps the parts of a program running. A part that fails is restarted, and the other parts
continue.

A fault is an unexpected exception, which means a bug. A fault is logged with its traceback and kept
for `status` and the metrics. A failed part restarts after a pause, which grows with repeated
failures. A single failed call is logged and not repeated.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable

import trio

from fieldagent.system import waits
from fieldagent.system.error_groups import get_all_errors, get_first_error
from fieldagent.system.lazy_dataclass import dataclass

Part = Callable[[], Awaitable[None]]
Note = Callable[[BaseException, str], None]
"""Function that is called with the exception of a failed call, and the name of its task."""

log = logging.getLogger(__name__)

PAUSES = (1.0, 2.0, 5.0, 15.0, 30.0)
"""Seconds before a part restarts after its first, second and later consecutive failures. The last
value repeats."""
STABLE_AFTER_S = 300.0
"""Seconds without a fault after which a part has recovered."""
DOWN_AFTER_S = 120.0
"""If consecutive faults continue for this many seconds, the part is considered down."""
TEXT_MAX = 200
"""Maximum characters of an exception's text that are kept."""


@dataclass(slots=True)
class PartFault:
    """Last fault of one part, and the number of faults since the program's start."""

    part: str
    error: str = ""
    at: float = 0.0
    """Unix time of the fault."""
    times: int = 0
    in_a_row: int = 0
    """Number of faults since the part last ran stably. 0 for calls that are not restarted."""
    first: float = 0.0
    last: float = 0.0
    """Time of the last of the faults that `in_a_row` counts, on trio's clock. `first` is the time
    of the first of them."""

    def is_down(self, now: float) -> bool:
        """Return True if the consecutive faults of the part have continued for DOWN_AFTER_S
        seconds, and the last of them is less than STABLE_AFTER_S seconds ago.
        """
        steady = now - self.last >= STABLE_AFTER_S
        return bool(self.in_a_row) and not steady and self.last - self.first >= DOWN_AFTER_S


class Supervisor:
    """Supervises parts. `fatal` exceptions end the whole program. The exceptions in `fatal` and
    `outside_errors` are not bugs, and their text describes the error. `clock` returns Unix time.
    """

    def __init__(
        self,
        fatal: tuple[type[Exception], ...],
        clock: Callable[[], float],
        outside_errors: tuple[type[Exception], ...] = (),
    ) -> None:
        self._fatal = fatal
        self._outside = (*fatal, *outside_errors)
        self._clock = clock
        self._faults: dict[str, PartFault] = {}

    async def keep_running(self, name: str, part: Part, *, mend: Part | None = None) -> None:
        """Run `part` until it returns or is cancelled, and restart it when it fails.

        `mend` cleans up after a failed run, and is awaited before the next run. Its failure is also
        a fault of the part. Raises fatal errors.
        """
        fault = self._faults.setdefault(name, PartFault(name))
        failed = False
        while True:
            failures: list[Exception] = []
            try:
                if failed and mend is not None:
                    await mend()
                await part()
            except* self._fatal:
                raise
            except* Exception as errors:
                # If the group also contains a cancellation, Python raises the cancellation again
                # after this block.
                failures.append(errors)
                self._count_in_a_row(fault)
                pause = PAUSES[min(fault.in_a_row, len(PAUSES)) - 1]
                self._report_fault(
                    fault, errors, f"it restarts in {pause:g} s; other parts continue"
                )
            if not failures:
                return
            failed = True
            await waits.sleep(pause)

    def make_reporter(self, name: str) -> Note:
        """Return a function with which a part reports an error that does not stop it."""
        fault = self._faults.setdefault(name, PartFault(name))

        def note(error: BaseException, activity: str) -> None:
            self._report_fault(fault, error, "other parts continue", activity)

        return note

    def get_faults(self) -> list[PartFault]:
        """Return one entry for each part. A part that never failed has `times` 0."""
        return list(self._faults.values())

    def count_faults(self) -> dict[str, int]:
        """Return the number of faults of each part since the program's start."""
        return {fault.part: fault.times for fault in self.get_faults()}

    def describe_trouble(self) -> str | None:
        """Return a text for people with the names of the parts that are down, or None if no part is
        down.
        """
        now = trio.current_time()
        down = [fault.part for fault in self.get_faults() if fault.is_down(now)]
        return f"failing repeatedly: {', '.join(down)}; see the log" if down else None

    def _count_in_a_row(self, fault: PartFault) -> None:
        now = trio.current_time()
        if not fault.in_a_row or now - fault.last >= STABLE_AFTER_S:
            fault.in_a_row, fault.first = 0, now
        fault.in_a_row += 1
        fault.last = now

    def _report_fault(
        self, fault: PartFault, error: BaseException, consequence: str, activity: str = ""
    ) -> None:
        text = f"{activity}: {describe_error(error)}" if activity else describe_error(error)
        fault.times += 1
        fault.at = self._clock()
        if text == fault.error or isinstance(get_first_error(error), self._outside):
            log.error("%s failed: %s; %s", fault.part, text, consequence)
            fault.error = text
            return
        fault.error = text
        report = (
            "%s failed: %s; %s. This is a mistake in fieldagent or in your own module: report"
            " these lines to its author"
        )
        log.error(report, fault.part, text, consequence, exc_info=error)


def log_fault(error: BaseException, activity: str) -> None:
    """Log a fault of a program without a supervisor. This function is a `Note`."""
    log.error("%s failed: %s", activity, describe_error(error), exc_info=error)


def describe_error(error: BaseException) -> str:
    """Return one line with the error and its place in our code. For a group, the line contains each
    kind of error once.
    """
    return " and ".join(dict.fromkeys(map(_describe_one_error, get_all_errors(error))))


def _describe_one_error(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own_frames = [frame for frame in frames if "fieldagent/" in frame.filename]
    places = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in own_frames[-1:]]
    error_text = " ".join(str(error).split())[:TEXT_MAX]
    return " at ".join([": ".join(filter(None, [type(error).__name__, error_text])), *places])
