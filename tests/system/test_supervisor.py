"""Parts that fail, in virtual time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio

from fieldagent.system.supervisor import (
    DOWN_AFTER_S,
    PAUSES,
    STABLE_AFTER_S,
    Supervisor,
    describe_error,
)


class FatalError(Exception):
    pass


class OutsideError(Exception):
    pass


def make_supervisor() -> Supervisor:
    return Supervisor(
        fatal=(FatalError,), outside_errors=(OutsideError,), clock=lambda: 1_790_000_000.0
    )


def make_failing_part(*runs: float | Exception, then: float = 0.0) -> tuple[Any, list[float]]:
    """Return a part that runs that long before each of its ends, and a list of its start times."""
    begun: list[float] = []

    async def part() -> None:
        begun.append(trio.current_time())
        run = runs[len(begun) - 1] if len(begun) <= len(runs) else None
        if isinstance(run, Exception):
            raise run
        if run is None:
            return
        await trio.sleep(run)
        raise ValueError("as a test")

    return part, begun


async def test_failed_part_restarts_with_growing_pauses_until_stable(clock: Any) -> None:
    part, begun = make_failing_part(0, 0, 0, 0, 0, 0, STABLE_AFTER_S, 0)
    await make_supervisor().keep_running("part", part)
    pauses = [b - a for a, b in pairwise(begun)]
    assert pauses == [*PAUSES, PAUSES[-1], STABLE_AFTER_S + PAUSES[0], PAUSES[1]]


async def test_part_is_reported_as_failing_until_recovery(clock: Any) -> None:
    part, _ = make_failing_part(*[0] * 20, STABLE_AFTER_S * 2)
    kept = make_supervisor()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.keep_running, "part", part)
        await trio.sleep(DOWN_AFTER_S / 2)
        assert kept.describe_trouble() is None
        await trio.sleep(DOWN_AFTER_S)
        assert kept.describe_trouble() == "failing repeatedly: part; see the log"
        await trio.sleep(20 * PAUSES[-1] + STABLE_AFTER_S)
        assert kept.describe_trouble() is None
        nursery.cancel_scope.cancel()


async def test_occasional_failures_are_not_reported_as_trouble(clock: Any) -> None:
    part, _ = make_failing_part(*[STABLE_AFTER_S] * 20)
    kept = make_supervisor()
    await kept.keep_running("part", part)
    assert kept.count_faults() == {"part": 20}
    assert kept.describe_trouble() is None


@pytest.mark.parametrize("wrapped", [False, True])
async def test_fatal_error_ends_the_supervisor(clock: Any, wrapped: bool) -> None:
    async def part() -> None:
        if not wrapped:
            raise FatalError("disk")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise FatalError("disk")

    kept = make_supervisor()
    with pytest.raises(BaseExceptionGroup) as raised:
        await kept.keep_running("part", part)
    assert raised.group_contains(FatalError)
    assert kept.count_faults() == {"part": 0}


async def test_cancelled_part_ends_even_if_its_cleanup_raises(clock: Any) -> None:
    async def part() -> None:
        async with trio.open_nursery() as nursery:

            async def clumsy() -> None:
                try:
                    await trio.sleep_forever()
                finally:
                    raise ValueError("while it ends")

            nursery.start_soon(clumsy)
            nursery.start_soon(trio.sleep_forever)

    kept = make_supervisor()
    with trio.move_on_after(1) as scope:
        await kept.keep_running("part", part)
    assert scope.cancelled_caught
    assert kept.count_faults() == {"part": 1}


async def test_repair_runs_before_each_restart_until_successful(clock: Any) -> None:
    part, begun = make_failing_part(0, 0)
    mended: list[float] = []

    async def mend() -> None:
        mended.append(trio.current_time())
        if len(mended) == 1:
            raise KeyError("mending fails too")

    kept = make_supervisor()
    await kept.keep_running("part", part, mend=mend)
    assert mended == [PAUSES[0], PAUSES[0] + PAUSES[1], begun[2]]
    assert len(begun) == 3
    assert kept.count_faults() == {"part": 3}


@pytest.mark.parametrize(
    ("first", "second", "tracebacks"),
    [
        (ValueError("a"), ValueError("a"), 1),
        (ValueError("a"), ValueError("b"), 2),
        (OutsideError("the database is away"), OutsideError("it is still"), 0),
    ],
)
async def test_traceback_is_logged_once_for_each_new_fault(
    clock: Any,
    caplog: pytest.LogCaptureFixture,
    first: Exception,
    second: Exception,
    tracebacks: int,
) -> None:
    part, _ = make_failing_part(first, second)
    kept = make_supervisor()
    await kept.keep_running("the part", part)
    assert len([record for record in caplog.records if record.exc_info]) == tracebacks
    (fault,) = kept.get_faults()
    assert (fault.part, fault.times) == ("the part", 2)
    assert str(second) in fault.error
    assert all(record.getMessage().startswith("the part failed: ") for record in caplog.records)


async def test_failed_call_is_counted_but_not_reported_as_a_failing_part(clock: Any) -> None:
    kept = make_supervisor()
    note = kept.make_reporter("HTTP")
    for _ in range(9):
        note(ValueError("as a test"), "GET /")
        await trio.sleep(DOWN_AFTER_S)
    (fault,) = kept.get_faults()
    assert (fault.error, fault.times) == ("GET /: ValueError: as a test", 9)
    assert kept.describe_trouble() is None


def test_error_is_described_in_one_line_with_its_place() -> None:
    with pytest.raises(AttributeError) as caught:
        describe_error(None)  # type: ignore[arg-type]
    assert describe_error(caught.value).rpartition(" at ")[2].startswith("supervisor.py:")
    assert describe_error(ExceptionGroup("", [KeyError("k")])) == "KeyError: 'k'"
    several = ExceptionGroup("", [KeyError("k"), ExceptionGroup("", [OSError("o"), KeyError("k")])])
    assert describe_error(several) == "KeyError: 'k' and OSError: o"
    assert (
        describe_error(ValueError("two\nlines " + "x" * 999))
        == "ValueError: two lines " + "x" * 190
    )
    assert describe_error(ValueError()) == "ValueError"
