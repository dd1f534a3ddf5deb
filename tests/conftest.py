"""Runs `async def` tests under trio, and sees that no test leaves a process behind.

A test that takes the fixture `clock` runs in virtual time: whenever every task waits, time jumps
to the next deadline. Ptys and worker threads are real: `tests.autojump` waits for those.
The threshold is above zero because other processes are real too.

SIGTERM ends a run as Ctrl-C does: fixtures are taken down, and processes with them.
"""

from __future__ import annotations

import inspect
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, settings

from tests import autojump, disk, fork_server, leftovers, offline
from tests.processes import PATIENCE
from tests.started import loopback

ROOT = Path(__file__).parents[1]
REAL_TIME_LIMIT = 2 * PATIENCE
"""Seconds after which a test that waits for something that never comes is ended."""

# How long it takes to draw an example tells of the machine's load, not of the strategy.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


FIRST = [
    ROOT / "tests" / name
    for name in (
        "soak/test_soak.py",
        "simulation/test_seeds.py",
        "cli/test_root.py",
        "agent/sms/test_sms_faults.py",
        "agent/sms/test_mmcli.py",
        "shipping/test_packages.py",
        "cli/test_setup.py",
        "hub/test_cloudloop_journey.py",
        "hub/bridge/test_tak_journey.py",
        "agent/people/test_camp.py",
        "test_pages.py",
        "agent/test_browser.py",
        "agent/test_browser_languages.py",
        "agent/channels/test_healing.py",
        "agent/journal/test_opening.py",
        "http/test_openapi.py",
        "simulator/test_simulate_node.py",
        "hub/test_foreign_modems.py",
        "agent/satellites/test_imt_watched.py",
        "hub/test_console_room.py",
        "hub/test_known_devices.py",
        "hub/test_console.py",
        "hub/test_commands.py",
        "agent/inbound/test_sos_first.py",
        "hub/test_deletion.py",
        "shipping/test_package_update.py",
        "hub/test_radio_journey.py",
        "shipping/test_update.py",
        "agent/journal/test_full_disk.py",
        "agent/test_update_news.py",
        "hub/test_fleet.py",
        "soak/test_people.py",
    )
]
"""What takes a minute and more, the longest first: begun last, one of them would keep the others'
processors waiting."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those, and then the files with the most tests."""
    files = Counter(item.path for item in items)

    def turn(item: pytest.Item) -> tuple[int, int]:
        place = FIRST.index(item.path) if item.path in FIRST else len(FIRST)
        return place, -files[item.path]

    items.sort(key=turn)


def pytest_addoption(parser: pytest.Parser) -> None:
    description = "start each program by exec, as users do, and not by tests/fork_server.py"
    parser.addoption("--cold", action="store_true", help=description)


def pytest_configure(config: pytest.Config) -> None:
    leftovers.mark()
    loopback.install()
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        # Not the workers themselves, which have the guard of this process.
        offline.hold_what_is_started()
    if not config.getoption("--cold"):
        fork_server.use()
    autojump.install()
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def pytest_unconfigure() -> None:
    leftovers.end(os.getpid())
    fork_server.close()
    offline.forget()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """What a test has started may say more until it is taken down."""
    yield
    if message := offline.left():
        pytest.fail(message)


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    """Some tests share a process with others of their module."""
    before = leftovers.processes()
    yield
    if left := leftovers.end(os.getpid(), before):
        pytest.fail("left running: " + "; ".join(left))


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0.1)


@pytest.fixture(scope="session")
def disk_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What makes the disk of a process fail, or writes down what it is told."""
    return disk.build(tmp_path_factory.mktemp("disk"))


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
        limited = clock is None and pyfuncitem.get_closest_marker("long") is None
        with trio.fail_after(REAL_TIME_LIMIT if limited else inf):
            await test(**arguments)

    trio.run(partial(bounded), clock=clock)
    return True
