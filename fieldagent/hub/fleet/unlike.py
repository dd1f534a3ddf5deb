"""What is unlike the others of a fleet, and what is bad in any: of each kit's figures.

1. A fixed limit is bad in any fleet, of one kit as well.
2. From three kits on that tell a figure, a number is unlike where it lies on the bad side of the
   median by more than five times the spread (1.4826 times the median of the distances from it,
   which is the standard deviation where numbers are spread normally), and by its floor at least.
3. A version, or a system, is unlike where more than half of the kits have another one.

What is older than a day is neither judged nor compared, but disk, version and system: those stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

FLEET_LEAST = 3
"""Kits that tell a figure, for it to be compared."""
SPREADS = 5 * 1.4826

DISK_LEAST, DEGREES_MOST, CLOCK_MOST, STARTS_MOST, DEAF_HOURS = 10, 80, 60, 5, 6
"""Fixed limits: percent free, Celsius, seconds, starts of the agent in a day, and hours known of
which each was without a bar."""


@dataclass(frozen=True, slots=True)
class KitFigures:
    """Of one kit; None, or empty, of what is not known, or too old to count."""

    version: str = ""
    system: str = ""
    disk_free: int | None = None
    """Percent."""
    degrees: int | None = None
    starts: int | None = None
    """Of the agent, in a day."""
    clock: int | None = None
    """Seconds by which its clock is ahead."""
    clock_untold: bool = False
    """Nobody has told it the time."""
    satellite: float | None = None
    """Median bars of the hours that are known."""
    satellite_hours: int = 0
    """How many those are."""
    budget: int | None = None
    """Percent of the day's credits that are left."""
    weak_supply: str = ""
    """`now`, or `before`: since the machine was started."""
    slowed: str = ""
    """The same: by heat, or by the supply."""
    parts_down: int = 0
    trouble: bool = False
    """The agent says that something is wrong with all of it."""
    overdue: float | None = None
    """Until when a word of it was due; None while it is in time."""


class Unlike(NamedTuple):
    what: str
    """One of TEXTS."""
    bad: bool
    """It would be in any fleet."""
    values: Mapping[str, Any]
    """For the places in its text."""


TEXTS = {
    "overdue": "a word of it was due by {time}",
    "trouble": "its agent is in trouble: ask for its log",
    "parts": "parts of its agent are down: {own}",
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
    "clock-untold": "nobody has told it the time",
    "starts": "its agent was started {own} times in a day",
    "starts-others": "its agent was started {own} times in a day; those of the others: {most}",
    "satellite": "it has seen no satellite for {own} hours",
    "satellite-others": "it hears satellites with {own} of 5; the others with {most}",
    "budget": "its budget of today is spent",
    "budget-others": "{own} % of its budget of today is left; the others have {most} %",
    "version": "runs {own}; {n} of {all} run {most}",
    "system": "its system is {own}; {n} of {all} have {most}",
}
"""In the order in which they are told; the console has them in other languages."""
_RANKS = {what: rank for rank, what in enumerate(TEXTS)}


class _Number(NamedTuple):
    """How a number is judged."""

    of: Callable[[KitFigures], float | None]
    sign: int
    """1: more is worse."""
    floor: float
    """By which it differs from the median at the least."""
    is_bad: Callable[[KitFigures], bool]


NUMBERS = {
    "disk": _Number(
        lambda kit: kit.disk_free,
        -1,
        20,
        lambda kit: kit.disk_free is not None and kit.disk_free < DISK_LEAST,
    ),
    "degrees": _Number(
        lambda kit: kit.degrees,
        1,
        15,
        lambda kit: kit.degrees is not None and kit.degrees >= DEGREES_MOST,
    ),
    "starts": _Number(
        lambda kit: kit.starts,
        1,
        3,
        lambda kit: kit.starts is not None and kit.starts >= STARTS_MOST,
    ),
    "satellite": _Number(
        lambda kit: kit.satellite,
        -1,
        2,
        lambda kit: kit.satellite == 0 and kit.satellite_hours >= DEAF_HOURS,
    ),
    "budget": _Number(lambda kit: kit.budget, -1, 40, lambda kit: kit.budget == 0),
}


def unlike(fleet: Sequence[KitFigures]) -> list[list[Unlike]]:
    """Return of each kit what is bad and what is unlike the others, the bad first."""
    middles = {what: _middle_of(fleet, number) for what, number in NUMBERS.items()}
    versions = _majority(kit.version for kit in fleet)
    systems = _majority(kit.system for kit in fleet)
    differences = []
    for kit in fleet:
        those = [*_fixed(kit)]
        for what, number in NUMBERS.items():
            those += _of_number(kit, what, number, middles[what])
        those += _of_text("version", kit.version, versions)
        those += _of_text("system", kit.system, systems)
        differences.append(sorted(those, key=lambda each: (not each.bad, _RANKS[each.what])))
    return differences


def _fixed(kit: KitFigures) -> Iterable[Unlike]:
    """Yield what is judged by itself alone."""
    if kit.overdue is not None:
        yield Unlike("overdue", True, {"time": kit.overdue})
    if kit.trouble:
        yield Unlike("trouble", True, {})
    if kit.parts_down:
        yield Unlike("parts", True, {"own": kit.parts_down})
    for what, when in (("supply", kit.weak_supply), ("slowed", kit.slowed)):
        if when:
            yield Unlike(what if when == "now" else f"{what}-before", True, {})
    if kit.clock_untold:
        yield Unlike("clock-untold", True, {})
    if kit.clock is not None and abs(kit.clock) >= CLOCK_MOST:
        what = "clock-ahead" if kit.clock > 0 else "clock-behind"
        yield Unlike(what, True, {"age": abs(kit.clock)})


class _Middle(NamedTuple):
    median: float
    spread: float


def _middle_of(fleet: Sequence[KitFigures], number: _Number) -> _Middle | None:
    """None where too few tell it."""
    known = [value for kit in fleet if (value := number.of(kit)) is not None]
    if len(known) < FLEET_LEAST:
        return None
    middle = median(known)
    return _Middle(middle, median(abs(value - middle) for value in known))


def _of_number(
    kit: KitFigures, what: str, number: _Number, middle: _Middle | None
) -> Iterable[Unlike]:
    own, bad = number.of(kit), number.is_bad(kit)
    if own is None:
        return
    values: dict[str, Any] = {"own": _whole(own)}
    if what == "satellite":
        values = {"own": kit.satellite_hours if bad else _whole(own)}
    if middle is not None and not (bad and what in ("satellite", "budget")):
        worse = number.sign * (own - middle.median)
        if worse >= number.floor and worse > SPREADS * middle.spread:
            yield Unlike(f"{what}-others", bad, {**values, "most": _whole(middle.median)})
            return
    if bad:
        yield Unlike(what, True, values)


class _Majority(NamedTuple):
    text: str
    have: int
    of: int


def _majority(texts: Iterable[str]) -> _Majority | None:
    """Return what more than half have; None where there is none, or too few tell."""
    known = [text for text in texts if text]
    if len(known) < FLEET_LEAST:
        return None
    ((text, have),) = Counter(known).most_common(1)
    return _Majority(text, have, len(known)) if 2 * have > len(known) else None


def _of_text(what: str, own: str, majority: _Majority | None) -> Iterable[Unlike]:
    if own and majority is not None and own != majority.text:
        values = {"own": own, "most": majority.text, "n": majority.have, "all": majority.of}
        yield Unlike(what, False, values)


def _whole(value: float) -> int | float:
    return int(value) if value == int(value) else round(value, 1)
