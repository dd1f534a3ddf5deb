"""Runs `async def` tests under trio, and checks that no test leaves a process behind.

A test with the fixture `clock` runs in virtual time: when all tasks wait, time jumps to the next
deadline. Ptys and worker threads are real, so `tests.autojump` waits for them. The threshold is
above zero because other processes are real too.

SIGTERM ends a run like Ctrl-C: the fixtures end, and their processes with them.
"""

from __future__ import annotations

import inspect
import os
import re
import signal
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, settings

from tests import autojump, browser, disk, durations, fork_server, leftovers, offline
from tests.processes import PATIENCE
from tests.started import loopback

ROOT = Path(__file__).parents[1]
DEFAULT = "not full and not soak"
"""Mark expression of the tests that `tests/run` selects, as in pyproject.toml."""
ALL_FULL = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.full\b", re.MULTILINE)
"""Matches a test file whose tests are all marked `full`."""
LIMIT_S = 2 * PATIENCE
"""Seconds after which a test in real time fails."""
LIMIT_FULL_S = 1800.0
"""Seconds after which a test marked `full` fails. A test marked `soak` has no limit."""

# The time to draw an example depends on the machine's load, not on the strategy.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files that contain no selected test, because each worker would import them."""
    is_left_out = config.option.markexpr == DEFAULT and collection_path.name.startswith("test_")
    named = {argument.partition("::")[0] for argument in config.args}
    if not is_left_out or {str(collection_path), os.path.relpath(collection_path, ROOT)} & named:
        return None
    return bool(ALL_FULL.search(collection_path.read_text())) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slowest files first. If they started last, they would still run while other workers
    are idle.
    """
    known = durations.read()
    items.sort(key=lambda item: -known.get(os.path.relpath(item.path, ROOT), inf))


def pytest_addoption(parser: pytest.Parser) -> None:
    description = "start each program by exec, as users do, and not by tests/fork_server.py"
    parser.addoption("--cold", action="store_true", help=description)
    description = "write the seconds of each file to tests/durations.txt"
    parser.addoption("--record-durations", action="store_true", help=description)


def pytest_configure(config: pytest.Config) -> None:
    leftovers.mark()
    loopback.install()
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        # Not in the process that only starts parallel workers, because each worker guards the
        # programs that it starts.
        offline.hold_what_is_started()
    if not config.getoption("--cold"):
        fork_server.use()
    browser.keep_open()
    autojump.install()
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(durations.Recorder())
    # nohup and a shell's `&` ignore these signals, and each program that a test starts would
    # inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def pytest_unconfigure() -> None:
    leftovers.end(os.getpid())
    browser.close_kept()
    fork_server.close()
    offline.forget()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Fail the test if programs tried to connect to other machines, also while they ended."""
    yield
    if message := offline.left():
        pytest.fail(message)


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    """Fail the module if processes remain. Some tests share a process with others of their
    module.
    """
    before = leftovers.processes()
    yield
    if left := leftovers.end(os.getpid(), before):
        pytest.fail("left running: " + "; ".join(left))


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0.1)


@pytest.fixture(scope="session")
def disk_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library that makes disk calls of a process fail, or records them."""
    return disk.build(tmp_path_factory.mktemp("disk"))


def _limit_s(item: pytest.Function) -> float:
    if item.get_closest_marker("soak"):
        return inf
    return LIMIT_FULL_S if item.get_closest_marker("full") else LIMIT_S


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test: Callable[..., Any] = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    value = arguments.get("clock")
    clock = value if isinstance(value, trio.testing.MockClock) else None

    async def bounded() -> None:
        with trio.fail_after(inf if clock else _limit_s(pyfuncitem)):
            await test(**arguments)

    trio.run(partial(bounded), clock=clock)
    return True
