"""Elapsed time from the machine's clocks, at each start and while it runs."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from fieldagent.system.clock_bounds import EARLIEST_TIME, LATEST_TIME
from fieldagent.system.elapsed_time import (
    CLOCK_CACHE_S,
    SAVE_INTERVAL_S,
    ClockBase,
    ElapsedTime,
    MachineClocks,
    Reading,
    compute_elapsed_time,
)

YEAR = 365 * 86_400.0
NOW = 1_790_000_000.0
BASE = ClockBase("one", 1000.0, NOW, 0.0, True)
"""Stored in boot `one`, whose clock was correct."""
UNSET = BASE._replace(elapsed=50.0, offset=0.0, trusted=False)
"""The same in 1970."""


@pytest.mark.parametrize(
    ("base", "seen", "elapsed"),
    [
        pytest.param(None, Reading("one", 5.0, NOW), NOW, id="a new journal"),
        pytest.param(None, Reading("one", 5.0, 12.0), 12.0, id="a new journal in 1970"),
        pytest.param(BASE, Reading("one", 1060.0, NOW + 60, "network"), NOW + 60, id="restart"),
        pytest.param(BASE, Reading("one", 1060.0, NOW - YEAR), NOW + 60, id="a year back"),
        pytest.param(BASE, Reading("one", 1060.0, NOW + 10 * YEAR), NOW + 60, id="ten forward"),
        pytest.param(UNSET, Reading("one", 1060.0, NOW, "network"), 110.0, id="set since 1970"),
        pytest.param(BASE, Reading("two", 20.0, NOW + 900, "network"), NOW + 900, id="was off"),
        pytest.param(BASE, Reading("two", 20.0, 20.0), NOW + 20, id="boots in 1970"),
        pytest.param(
            BASE, Reading("two", 20.0, NOW + 900), NOW + 20, id="boots with a doubtful clock"
        ),
        pytest.param(UNSET, Reading("two", 20.0, NOW, "network"), 70.0, id="1970, then a boot"),
        pytest.param(
            BASE, Reading("two", 20.0, NOW - 9, "network"), NOW + 20, id="was off for < 0"
        ),
        pytest.param(
            BASE._replace(elapsed=100.0, offset=NOW - 100.0),
            Reading("two", 20.0, NOW + 900, "network"),
            1000.0,
            id="was off, and began in 1970",
        ),
    ],
)
def test_elapsed_time_resumes_from_its_base(
    base: ClockBase | None, seen: Reading, elapsed: float
) -> None:
    assert compute_elapsed_time(base, seen) == pytest.approx(elapsed)
    assert ElapsedTime(base, lambda: seen).now() == pytest.approx(elapsed)


class Machine:
    def __init__(self, seen: Reading) -> None:
        self.seen = seen

    def look(self) -> Reading:
        return self.seen

    def passes(self, seconds: float, by: float = 0.0) -> None:
        """Let time pass, and set the wall clock by this difference."""
        self.seen = replace(
            self.seen,
            since_boot=self.seen.since_boot + seconds,
            wall_time=self.seen.wall_time + seconds + by,
        )


@pytest.mark.parametrize("jump", [-YEAR, -3 * 86_400.0, -1.0, 1.0, 3 * 86_400.0, 10 * YEAR])
def test_clock_step_does_not_change_elapsed_time(jump: float) -> None:
    machine = Machine(Reading("one", 7.0, NOW))
    time = ElapsedTime(None, machine.look)
    began = time.now()
    machine.passes(60.0, by=jump)
    assert time.now() == pytest.approx(began + 60)
    assert time.date(began) == pytest.approx(NOW + jump), "told as the clock has it now"
    machine.passes(60.0, by=-jump)
    assert time.now() == pytest.approx(began + 120)
    assert time.date(began) == pytest.approx(NOW)


@pytest.mark.parametrize(
    ("jump", "level"), [(-1.0, logging.INFO), (-59.0, logging.INFO), (3600.0, logging.WARNING)]
)
def test_only_a_large_clock_step_is_logged_as_a_warning(
    jump: float, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A clock chip has whole seconds, so each start moves the clock by a second or two."""
    caplog.set_level(logging.INFO)
    machine = Machine(Reading("one", 1000.0, NOW, "network"))
    clock = ElapsedTime(None, machine.look)
    machine.passes(10.0, by=jump)
    clock.date(clock.now())
    assert [each.levelno for each in caplog.records if "dates change by" in each.message] == [level]


def test_slewed_clock_changes_no_date() -> None:
    machine = Machine(Reading("one", 7.0, NOW))
    time = ElapsedTime(None, machine.look)
    machine.passes(1000.0, by=0.01)
    assert time.date(NOW) == NOW


def test_base_is_stored_at_its_interval() -> None:
    machine = Machine(Reading("one", 7.0, NOW))
    time = ElapsedTime(None, machine.look)
    first = time.get_due_base()
    assert first is not None, "at once"
    assert time.get_due_base() is not None, "until it is on disk"
    time.mark_kept(first)
    machine.passes(SAVE_INTERVAL_S - 1)
    assert time.get_due_base() is None
    machine.passes(1)
    assert time.get_due_base() == ClockBase(
        "one", 7.0 + SAVE_INTERVAL_S, NOW + SAVE_INTERVAL_S, 0.0, False
    )


def test_machine_clocks_advance_within_a_boot() -> None:
    look = MachineClocks()
    first, second = look(), look()
    assert first.boot == second.boot
    assert 0 < first.since_boot <= second.since_boot


def test_dates_follow_the_best_time_source_while_the_clock_is_untrusted() -> None:
    machine = Machine(Reading("one", 7.0, 12.0))
    time = ElapsedTime(None, machine.look)
    assert (time.source(), time.date(time.now())) == ("", 12.0)
    time.record_time("hub", NOW)
    assert (time.source(), time.date(time.now())) == ("hub", NOW)
    time.record_time("satellite", NOW + 30)
    machine.passes(60.0, by=-5.0)
    assert (time.source(), time.date(time.now())) == ("satellite", NOW + 90)
    time.record_time("hub", NOW + 1000)
    assert time.date(time.now()) == NOW + 90, "another tells it better"
    assert time.get_base() == ClockBase("one", 67.0, 72.0, NOW + 18, True)
    machine.seen = replace(machine.seen, wall_time=NOW + 100, source="network")
    assert (time.source(), time.date(time.now())) == ("network", NOW + 100)


def test_implausible_time_is_ignored() -> None:
    time = ElapsedTime(None, lambda: Reading("one", 7.0, 12.0))
    time.record_time("satellite", EARLIEST_TIME - 1)
    time.record_time("GPS", LATEST_TIME + 1)
    assert (time.source(), time.date(time.now())) == ("", 12.0)


CONTRADICTIONS = [
    ({"GPS": 7 * 86_400, "hub": 0}, "", 7 * 86_400),
    ({"GPS": 7 * 86_400, "satellite": 0, "hub": 1}, "satellite", 0),
    ({"GPS": 0, "satellite": 7 * 86_400, "hub": 1}, "GPS", 0),
    ({"GPS": 0, "hub": 1_000}, "GPS", 0),
]
"""Error of each source in seconds, the trusted source, and the resulting error of dates."""


@pytest.mark.parametrize(("sources", "trusted", "off"), CONTRADICTIONS)
def test_contradicted_time_source_is_not_trusted(
    sources: dict[str, float], trusted: str, off: float
) -> None:
    """root's unit does not set the clock from it either."""
    time = ElapsedTime(None, lambda: Reading("one", 7.0, 12.0))
    for source, wrong in sources.items():
        time.record_time(source, NOW + wrong)
    assert (time.source(), time.date(time.now())) == (trusted, NOW + off)
    better = time.find_better_time()
    assert ("" if better is None else better.source) == trusted


def test_kernel_clock_state_is_queried_at_an_interval_and_after_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = MachineClocks()
    asked: list[str] = []

    def ask() -> str:
        asked.append("the kernel")
        return "network"

    monkeypatch.setattr(look, "_ask", ask)
    shown = {"wall": NOW, "boot": 100.0}
    monkeypatch.setattr("fieldagent.system.elapsed_time.time.time", lambda: shown["wall"])
    monkeypatch.setattr(
        "fieldagent.system.elapsed_time.time.clock_gettime", lambda clock: shown["boot"]
    )
    for _ in range(100):
        assert look().source == "network"
    assert len(asked) == 1
    shown["wall"] += 3600
    look()
    assert len(asked) == 2, "it was set"
    shown["wall"] = 12.0
    assert look().source == ""
    assert len(asked) == 2, "no need to ask"
    shown.update(wall=NOW, boot=100.0 + CLOCK_CACHE_S)
    look()
    assert len(asked) == 3
