"""Runs `async def` tests under trio.

A test that takes the fixture `clock` runs in virtual time: whenever every task waits, time jumps
to the next deadline. The threshold is above zero because ptys and worker threads are real.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

REAL_TIME_LIMIT = 60.0
"""Seconds after which a test that waits for something that never comes is ended."""


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0.1)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test: Callable[..., Any] = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    given = arguments.get("clock")
    clock = given if isinstance(given, trio.testing.MockClock) else None

    async def bounded() -> None:
        with trio.fail_after(float("inf") if clock else REAL_TIME_LIMIT):
            await test(**arguments)

    trio.run(partial(bounded), clock=clock)
    return True
