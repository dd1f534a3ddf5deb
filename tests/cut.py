"""Simulates a power cut at one of many calls by an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest


class PowerCut(BaseException):
    pass


@contextmanager
def cut_at(step: int, *calls: tuple[Any, str]) -> Iterator[list[int]]:
    """End the block at call number `step` of `calls`, which are pairs (owner, name). Yield the list
    of the numbers of calls so far.
    """
    made: list[int] = []

    def cut(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            made.append(len(made))
            if made[-1] == step:
                raise PowerCut
            return call(*arguments, **named)

        return counted

    with pytest.MonkeyPatch.context() as breaking, suppress(PowerCut):
        for owner, name in calls:
            breaking.setattr(owner, name, cut(getattr(owner, name)))
        yield made


def cut_everywhere(home: Path, run: Callable[[Path, int], list[int]]) -> int:
    """Cut the power at each counted call in turn, then run once without a cut.

    `run` gets an empty folder and the number of the call at which power fails. It returns the calls
    that `cut_at` has counted. Return the number of calls.
    """
    for step in count():
        folder = home / f"cut-{step}"
        folder.mkdir()
        try:
            made = run(folder, step)
        except Exception as error:
            error.add_note(f"power failed at call {step}")
            raise
        if len(made) <= step:
            return step
    raise AssertionError
