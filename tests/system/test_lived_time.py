"""What lived time makes of what the machine's clocks show, at each start and while it runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fieldagent.system.lived_time import KEEP_EVERY, Base, LivedTime, Reading, lived_by, read_clocks

YEAR = 365 * 86_400.0
NOW = 1_790_000_000.0
BASE = Base("one", 1000.0, NOW, 0.0, True)
"""Written down in boot `one`, whose clock was right."""
UNSET = BASE._replace(lived=50.0, offset=0.0, trusted=False)
"""The same in 1970."""


@pytest.mark.parametrize(
    ("base", "seen", "lived"),
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
            BASE._replace(lived=100.0, offset=NOW - 100.0),
            Reading("two", 20.0, NOW + 900, "network"),
            1000.0,
            id="was off, and began in 1970",
        ),
    ],
)
def test_where_it_goes_on(base: Base | None, seen: Reading, lived: float) -> None:
    assert lived_by(base, seen) == pytest.approx(lived)
    assert LivedTime(base, lambda: seen).now() == pytest.approx(lived)


class Machine:
    def __init__(self, seen: Reading) -> None:
        self.seen = seen

    def look(self) -> Reading:
        return self.seen

    def passes(self, seconds: float, by: float = 0.0) -> None:
        """Time passes, and the wall clock is set `by` so much beside it."""
        self.seen = replace(
            self.seen,
            since_boot=self.seen.since_boot + seconds,
            wall=self.seen.wall + seconds + by,
        )


@pytest.mark.parametrize("jump", [-YEAR, -3 * 86_400.0, -1.0, 1.0, 3 * 86_400.0, 10 * YEAR])
def test_a_clock_that_is_set_does_not_move_it(jump: float) -> None:
    machine = Machine(Reading("one", 7.0, NOW))
    time = LivedTime(None, machine.look)
    began = time.now()
    machine.passes(60.0, by=jump)
    assert time.now() == pytest.approx(began + 60)
    assert time.date(began) == pytest.approx(NOW + jump), "told as the clock has it now"
    machine.passes(60.0, by=-jump)
    assert time.now() == pytest.approx(began + 120)
    assert time.date(began) == pytest.approx(NOW)


def test_a_clock_that_is_steered_changes_no_date() -> None:
    machine = Machine(Reading("one", 7.0, NOW))
    time = LivedTime(None, machine.look)
    machine.passes(1000.0, by=0.01)
    assert time.date(NOW) == NOW


def test_it_is_written_down_now_and_then() -> None:
    machine = Machine(Reading("one", 7.0, NOW))
    time = LivedTime(None, machine.look)
    first = time.due()
    assert first is not None, "at once"
    assert time.due() is not None, "until it is on disk"
    time.kept(first)
    machine.passes(KEEP_EVERY - 1)
    assert time.due() is None
    machine.passes(1)
    assert time.due() == Base("one", 7.0 + KEEP_EVERY, NOW + KEEP_EVERY, 0.0, False)


def test_this_machine_has_clocks() -> None:
    first, second = read_clocks(), read_clocks()
    assert first.boot == second.boot
    assert 0 < first.since_boot <= second.since_boot
