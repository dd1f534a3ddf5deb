"""Compares the kits of a fleet. Finds bad values, and values that differ from those of the other
kits.

1. A fixed limit applies in any fleet, even to a single kit.
2. A number is compared if at least three kits report it. A number differs if it is on the bad side
   of the median, by at least its floor and by more than five times the spread. The spread is 1.4826
   times the median distance from the median. For a normal distribution, that is the standard
   deviation.
3. A version or a system differs if more than half of the kits have the same other version or
   system.

Figures older than a day are neither judged nor compared, except disk, version and system, which
change slowly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

FLEET_MIN = 3
"""Smallest number of kits that must report a figure before the figure is compared."""
SPREADS = 5 * 1.4826

DISK_FREE_MIN, DEGREES_MAX, CLOCK_ERROR_MAX, STARTS_MAX, NO_SIGNAL_HOURS = 10, 80, 60, 5, 6
"""Fixed limits: percent of free disk, degrees Celsius, seconds, starts of the agent in a day, and
hours whose signal is known and has no bar."""


@dataclass(frozen=True, slots=True)
class KitFigures:
    """Figures of one kit. A figure that is unknown or too old is None or empty."""

    version: str = ""
    system: str = ""
    disk_free: int | None = None
    """Percent of the disk that is free."""
    degrees: int | None = None
    starts: int | None = None
    """Number of starts of the agent in a day."""
    clock: int | None = None
    """Seconds by which the kit's clock is fast."""
    clock_unset: bool = False
    """True if no one has set the kit's clock."""
    satellite: float | None = None
    """Median number of bars in the hours whose signal is known."""
    satellite_hours: int = 0
    """Number of hours whose signal is known."""
    budget: int | None = None
    """Percent of the day's credits that are left."""
    weak_supply: str = ""
    """`now` if the supply voltage is too low now, or `before` if it was too low since the last
    start of the machine."""
    slowed_by: str = ""
    """`now` if heat or a weak supply slows the machine, or `before` if this was so after its last
    start."""
    parts_down: int = 0
    trouble: bool = False
    """True if the agent reports that it cannot work normally."""
    overdue: float | None = None
    """Unix time when a late check-in was due; None if no check-in is late."""


class Difference(NamedTuple):
    finding: str
    """A key of TEXTS."""
    bad: bool
    """True if the value is bad in any fleet."""
    values: Mapping[str, Any]
    """Values for the placeholders in the text."""


TEXTS = {
    "overdue": "check-in was due by {time}",
    "trouble": "its agent is in trouble: ask for its log",
    "parts": "parts of its agent have failed: {own}",
    "disk": "{own} % of its disk is free",
    "disk-others": "{own} % of its disk is free; the others have {most} %",
    "supply": "its supply is too weak",
    "supply-before": "its supply was too weak since it was started",
    "slowed": "its processor is slowed down, by heat or a weak supply",
    "slowed-before": "its processor was slowed down since it was started",
    "degrees": "its processor is at {own} °C",
    "degrees-others": "its processor is at {own} °C; those of the others at {most} °C",
    "clock-ahead": "its clock is ahead by {age}",
    "clock-behind": "its clock is behind by {age}",
    "clock-untold": "it has no time source",
    "starts": "its agent was started {own} times in a day",
    "starts-others": "its agent was started {own} times in a day; those of the others: {most}",
    "satellite": "it has seen no satellite for {own} hours",
    "satellite-others": "it hears satellites with {own} of 5; the others with {most}",
    "budget": "its budget of today is spent",
    "budget-others": "{own} % of its budget of today is left; the others have {most} %",
    "version": "runs {own}; {n} of {all} run {most}",
    "system": "its system is {own}; {n} of {all} have {most}",
}
"""Texts in the order of display. The console contains translations."""
_RANKS = {what: rank for rank, what in enumerate(TEXTS)}


class _Number(NamedTuple):
    """Rules for comparing a number between kits."""

    of: Callable[[KitFigures], float | None]
    sign: int
    """1 if a higher value is worse, or -1 if a lower value is worse."""
    floor: float
    """Smallest difference from the median that is reported."""
    is_bad: Callable[[KitFigures], bool]


COMPARED_NUMBERS = {
    "disk": _Number(
        lambda kit: kit.disk_free,
        -1,
        20,
        lambda kit: kit.disk_free is not None and kit.disk_free < DISK_FREE_MIN,
    ),
    "degrees": _Number(
        lambda kit: kit.degrees,
        1,
        15,
        lambda kit: kit.degrees is not None and kit.degrees >= DEGREES_MAX,
    ),
    "starts": _Number(
        lambda kit: kit.starts,
        1,
        3,
        lambda kit: kit.starts is not None and kit.starts >= STARTS_MAX,
    ),
    "satellite": _Number(
        lambda kit: kit.satellite,
        -1,
        2,
        lambda kit: kit.satellite == 0 and kit.satellite_hours >= NO_SIGNAL_HOURS,
    ),
    "budget": _Number(lambda kit: kit.budget, -1, 40, lambda kit: kit.budget == 0),
}


def find_outliers(fleet: Sequence[KitFigures]) -> list[list[Difference]]:
    """Return a list for each kit: its bad values, then its other differences."""
    middles = {fact: _compute_middle(fleet, number) for fact, number in COMPARED_NUMBERS.items()}
    versions = _find_majority(kit.version for kit in fleet)
    systems = _find_majority(kit.system for kit in fleet)
    differences = []
    for kit in fleet:
        outliers = [*_check_fixed(kit)]
        for fact, number in COMPARED_NUMBERS.items():
            outliers += _compare_number(kit, fact, number, middles[fact])
        outliers += _compare_text("version", kit.version, versions)
        outliers += _compare_text("system", kit.system, systems)
        differences.append(sorted(outliers, key=lambda each: (not each.bad, _RANKS[each.finding])))
    return differences


def _check_fixed(kit: KitFigures) -> Iterable[Difference]:
    """Yield the findings that do not depend on other kits."""
    if kit.overdue is not None:
        yield Difference("overdue", True, {"time": kit.overdue})
    if kit.trouble:
        yield Difference("trouble", True, {})
    if kit.parts_down:
        yield Difference("parts", True, {"own": kit.parts_down})
    for fact, since in (("supply", kit.weak_supply), ("slowed", kit.slowed_by)):
        if since:
            yield Difference(fact if since == "now" else f"{fact}-before", True, {})
    if kit.clock_unset:
        yield Difference("clock-untold", True, {})
    if kit.clock is not None and abs(kit.clock) >= CLOCK_ERROR_MAX:
        fact = "clock-ahead" if kit.clock > 0 else "clock-behind"
        yield Difference(fact, True, {"age": abs(kit.clock)})


class _Median(NamedTuple):
    median: float
    spread: float


def _compute_middle(fleet: Sequence[KitFigures], number: _Number) -> _Median | None:
    """Return the median and the spread of a number, or None if too few kits report the number."""
    known_values = [value for kit in fleet if (value := number.of(kit)) is not None]
    if len(known_values) < FLEET_MIN:
        return None
    middle = median(known_values)
    return _Median(middle, median(abs(value - middle) for value in known_values))


def _compare_number(
    kit: KitFigures, finding: str, number: _Number, middle: _Median | None
) -> Iterable[Difference]:
    own, is_bad = number.of(kit), number.is_bad(kit)
    if own is None:
        return
    values: dict[str, Any] = {"own": _round_if_whole(own)}
    if finding == "satellite":
        values = {"own": kit.satellite_hours if is_bad else _round_if_whole(own)}
    if middle is not None and not (is_bad and finding in ("satellite", "budget")):
        worse = number.sign * (own - middle.median)
        if worse >= number.floor and worse > SPREADS * middle.spread:
            yield Difference(
                f"{finding}-others", is_bad, {**values, "most": _round_if_whole(middle.median)}
            )
            return
    if is_bad:
        yield Difference(finding, True, values)


class _Majority(NamedTuple):
    text: str
    have: int
    of: int


def _find_majority(texts: Iterable[str]) -> _Majority | None:
    """Return the text that more than half of the kits have. Return None if there is no such text,
    or if too few kits report a text.
    """
    known_texts = [text for text in texts if text]
    if len(known_texts) < FLEET_MIN:
        return None
    ((text, have),) = Counter(known_texts).most_common(1)
    return _Majority(text, have, len(known_texts)) if 2 * have > len(known_texts) else None


def _compare_text(finding: str, kit_text: str, majority: _Majority | None) -> Iterable[Difference]:
    if kit_text and majority is not None and kit_text != majority.text:
        values = {"own": kit_text, "most": majority.text, "n": majority.have, "all": majority.of}
        yield Difference(finding, False, values)


def _round_if_whole(value: float) -> int | float:
    return int(value) if value == int(value) else round(value, 1)
