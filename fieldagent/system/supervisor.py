"""Keeps the parts of a program running: one that fails is started again, and the others go on.

A fault is an exception that nobody expected, and so a mistake of ours. It is logged with its
traceback and kept for `status` and the metrics. A part that failed starts again after a pause,
which grows while it fails again and again; a single call that fails is told and has ended.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable

import trio

from fieldagent.system import waits
from fieldagent.system.error_groups import all_errors, first_error
from fieldagent.system.lazy_dataclass import dataclass

Part = Callable[[], Awaitable[None]]
Note = Callable[[BaseException, str], None]
"""Takes the exception by which one call failed, and a word on what that was to do."""

log = logging.getLogger(__name__)

PAUSES = (1.0, 2.0, 5.0, 15.0, 30.0)
"""Seconds before a part starts again, by how often it failed in a row; the last for ever."""
STEADY = 300.0
"""Seconds without a fault after which a part has recovered."""
DOWN_AFTER = 120.0
"""Seconds from the first of the faults in a row to the one by which a part counts as down."""
TEXT_MAX = 200
"""Characters of what an exception says that are kept."""


@dataclass(slots=True)
class PartFault:
    """The last of one part, and how many there were since the program began."""

    part: str
    error: str = ""
    at: float = 0.0
    """Unix time."""
    times: int = 0
    in_a_row: int = 0
    """Since the part last ran steadily; 0 for what is not started again."""
    first: float = 0.0
    last: float = 0.0
    """Of those in a row; trio's clock."""

    def is_down(self, now: float) -> bool:
        """Return whether it does not recover."""
        steady = now - self.last >= STEADY
        return bool(self.in_a_row) and not steady and self.last - self.first >= DOWN_AFTER


class Supervisor:
    """`fatal` are the exceptions that end the whole program; they and those from `outside` are no
    mistakes of ours, and say in words what is wrong. `clock` is Unix time."""

    def __init__(
        self,
        fatal: tuple[type[Exception], ...],
        clock: Callable[[], float],
        outside: tuple[type[Exception], ...] = (),
    ) -> None:
        self._fatal = fatal
        self._outside = (*fatal, *outside)
        self._clock = clock
        self._faults: dict[str, PartFault] = {}

    async def keep(self, name: str, part: Part, *, mend: Part | None = None) -> None:
        """Run `part` until it returns or is cancelled, again and again while it fails.

        `mend` puts in order what a run that failed has left; it is awaited before the next run, and
        one that fails is a fault of the part like any other. Raises what is fatal.
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
                # A cancellation among them goes on from here by itself.
                failures.append(errors)
                self._count_in_a_row(fault)
                pause = PAUSES[min(fault.in_a_row, len(PAUSES)) - 1]
                self._tell(fault, errors, f"it starts again in {pause:g} s; the rest goes on")
            if not failures:
                return
            failed = True
            await waits.sleep(pause)

    def notes(self, name: str) -> Note:
        """Return what a part calls that goes on when one of its calls fails."""
        fault = self._faults.setdefault(name, PartFault(name))

        def note(error: BaseException, doing: str) -> None:
            self._tell(fault, error, "the rest goes on", doing)

        return note

    def faults(self) -> list[PartFault]:
        """Return one for each part; those that never failed have `times` 0."""
        return list(self._faults.values())

    def counts(self) -> dict[str, int]:
        """Return how often each part has failed since the program began."""
        return {fault.part: fault.times for fault in self.faults()}

    def trouble(self) -> str | None:
        """Return the parts that do not recover, in a sentence; None where all do."""
        now = trio.current_time()
        down = [fault.part for fault in self.faults() if fault.is_down(now)]
        return f"failing again and again: {', '.join(down)}; the log says why" if down else None

    def _count_in_a_row(self, fault: PartFault) -> None:
        now = trio.current_time()
        if not fault.in_a_row or now - fault.last >= STEADY:
            fault.in_a_row, fault.first = 0, now
        fault.in_a_row += 1
        fault.last = now

    def _tell(self, fault: PartFault, error: BaseException, then: str, doing: str = "") -> None:
        text = f"{doing}: {brief(error)}" if doing else brief(error)
        fault.times += 1
        fault.at = self._clock()
        if text == fault.error or isinstance(first_error(error), self._outside):
            log.error("%s failed: %s; %s", fault.part, text, then)
            fault.error = text
            return
        fault.error = text
        report = "%s failed: %s; %s. This is a mistake in fieldagent: please report these lines"
        log.error(report, fault.part, text, then, exc_info=error)


def log_fault(error: BaseException, doing: str) -> None:
    """Log a fault: the `Note` of who has no supervisor."""
    log.error("%s failed: %s", doing, brief(error), exc_info=error)


def brief(error: BaseException) -> str:
    """Return in a line what was raised, and where in our own code; of a group, each of its kinds
    once."""
    return " and ".join(dict.fromkeys(map(_brief, all_errors(error))))


def _brief(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "fieldagent/" in frame.filename]
    where = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in ours[-1:]]
    said = " ".join(str(error).split())[:TEXT_MAX]
    return " at ".join([": ".join(filter(None, [type(error).__name__, said])), *where])
