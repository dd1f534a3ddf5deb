"""The bar on a terminal, and the lines elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from fieldagent.system.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("whole", "bar"),
    [
        (
            3_000_000,
            "\r\x1b[K[" + "#" * 10 + "." * 20 + "] copying a\\x1bb: 1,000,000 of 3,000,000 rows",
        ),
        (None, "\r\x1b[Kcopying a\\x1bb: 1,000,000 rows"),
    ],
)
def test_terminal_bar_is_shown_and_cleared_at_the_end(
    monkeypatch: pytest.MonkeyPatch, whole: int | None, bar: str
) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    monkeypatch.setenv("COLUMNS", "100")
    times = iter([0.0, 0.01, 1.0, 1.0])
    with Progress("copying a\x1bb", "rows", lambda: next(times)) as progress:
        progress.show(1, whole)
        progress.show(1_000_000, whole)
    assert stream.getvalue() == bar + "\r\x1b[K"


def test_bar_is_never_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    monkeypatch.setenv("COLUMNS", "40")
    times = iter([0.0, 1.0, 1.0])
    Progress("copying", "rows", lambda: next(times)).show(5, 5)
    assert len(stream.getvalue().removeprefix("\r\x1b[K")) == 39


def test_long_task_prints_its_first_line_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    times = iter([0.0, 0.0, 0.1])
    with Progress("moving", "rows", lambda: next(times), at_once=True) as progress:
        progress.show(1, 5)
        progress.show(2, 5)
    assert stream.getvalue() == "moving: 1 of 5 rows\n"


def test_log_gets_a_progress_line_at_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    times = iter([0.0, 9.0, 11.0, 11.0, 20.0, 22.0, 22.0])
    with Progress("copying", "rows", lambda: next(times)) as progress:
        for done in (1, 2, 3, 4):
            progress.show(done, 5)
    assert stream.getvalue() == "copying: 2 of 5 rows\ncopying: 4 of 5 rows\n"
