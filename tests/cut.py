"""Power that fails at one call of many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest


class PowerCut(BaseException):
    pass


@contextmanager
def cut_at(step: int, *calls: tuple[Any, str]) -> Iterator[list[int]]:
    """What is within ends at the call of that number, of those `calls` name: (owner, name). Yields
    the numbers of the calls that were made."""
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
