"""A program that gets one or several stop signals, up to its last moment, ends in order."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from tests.processes import MODULE, PATIENCE, Running, administer, agent, hub, until

ASKS = (signal.SIGTERM, signal.SIGINT)
ASKED_MAX = 10_000
BETWEEN = 0.001
"""Seconds between two signals. A shorter phase of its end is not covered."""


def start_agent(home: Path) -> AbstractContextManager[Running]:
    return agent(home, {"satellite-port": None})


def start_hub(home: Path) -> AbstractContextManager[Running]:
    database = str(home / "hub.sqlite3")
    administer(database, "init", "Alps")
    return hub(home, {"database": database})


def start_demo(home: Path) -> AbstractContextManager[Running]:
    return Running([*MODULE, "demo", "--port", "0"], "Ctrl-C ends the demo")


@pytest.mark.parametrize("ask", ASKS, ids=[each.name for each in ASKS])
@pytest.mark.parametrize("started", [start_agent, start_hub, start_demo])
def test_program_ends_in_order_after_repeated_stop_signals(
    tmp_path: Path, started: Callable[[Path], AbstractContextManager[Running]], ask: signal.Signals
) -> None:
    with started(tmp_path) as running:
        for _ in range(ASKED_MAX):
            running.process.send_signal(ask)
            with suppress(subprocess.TimeoutExpired):
                running.process.wait(BETWEEN)
                break
        assert running.wait() == 0, running.lines
    assert "Traceback" not in "\n".join(running.lines)


PLAN = """
name = "Two months"
days = 60
[[kit]]
name = "hut"
bearers = ["cellular"]
position-every = "1m"
"""
MAKERS = {
    "drill": ["drill", "{home}/plan.toml"],
    "demo": ["demo", "--port", "0"],
    "a team": ["demo", "--port", "0", "--team", "2"],
    "a modem": ["simulate", "satellite"],
    "a node": ["simulate", "node"],
}
"""Commands that make a folder."""


@pytest.mark.full
@pytest.mark.parametrize("ask", [*ASKS, signal.SIGHUP], ids=lambda ask: ask.name)
@pytest.mark.parametrize("words", MAKERS.values(), ids=MAKERS.keys())
def test_temporary_folder_is_removed_after_any_stop_signal(
    tmp_path: Path, words: list[str], ask: signal.Signals
) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    made = tmp_path / "made"
    made.mkdir()
    command = [*MODULE, *(word.format(home=tmp_path) for word in words)]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(made)},
    ) as process:
        try:
            until(lambda: list_used_folders(process.pid, made))
            folders = list_used_folders(process.pid, made)
            process.send_signal(ask)
            process.wait(PATIENCE)
        finally:
            process.kill()
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
    assert not [each for each in folders if each.exists()]


def list_used_folders(pid: int, made: Path) -> set[Path]:
    """Return folders that contain something. Those of a drill are in memory."""
    folders = {each.parent for each in made.glob("fieldagent-*/*")}
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            parts = file.readlink().parts
            if parts[:3] == ("/", "dev", "shm") and parts[3].startswith("fieldagent-drill-"):
                folders.add(Path(*parts[:4]))
    return folders
