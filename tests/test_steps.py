"""A stopped test run, and careless tests, leave no process running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import durations, leftovers, touched
from tests.processes import PATIENCE, started, until
from tests.steps import outcomes

SLOW = """
import subprocess, sys
from pathlib import Path
from tests.processes import sky, started

def test_that_does_not_end(tmp_path):
    with sky(tmp_path), started([sys.executable, "-m", "tests.simulation", "0", "99"]):
        Path("RUNS").touch()
        subprocess.run(["sleep", "1000"])
"""
CARELESS = """
import subprocess
from tests.processes import Hub

def test_that_starts_what_fails(tmp_path):
    Hub(tmp_path, {"database": str(tmp_path / "hub.sqlite3"), "port": "none"})

def test_that_forgets():
    forgotten = ["sh", "-c", "echo runs; exec sleep 1000"]
    run = subprocess.Popen(forgotten, start_new_session=True, stdout=subprocess.PIPE)
    assert run.stdout.readline()
"""
STEPS = """
import sys
from tests import steps
steps.CHECKS, steps.TESTS = (), (("tests", *sys.argv[1:]),)
sys.exit(steps.main([]))
"""


def pytest_of(folder: Path, test: str) -> list[str]:
    """Return the command of a separate run with one file."""
    file = folder / "test_inner.py"
    file.write_text(test.replace("RUNS", str(folder / "runs")))
    options = ["-q", "-p", "no:cacheprovider", "-p", "tests.conftest", "--rootdir", folder]
    arguments = [*options, "--basetemp", folder / "inner", file]
    return [sys.executable, "-m", "pytest", *map(str, arguments)]


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.full
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "with a worker"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_leaves_no_process(tmp_path: Path, number: int, workers: list[str]) -> None:
    with started([*pytest_of(tmp_path, SLOW), *workers]) as run:
        until(lambda: len(leftovers.left(run.pid, set())) >= 3)
        run.send_signal(number)
        assert run.wait(PATIENCE) == pytest.ExitCode.INTERRUPTED
        assert leftovers.left(run.pid, set()) == {}


@pytest.mark.full
def test_terminated_steps_leave_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STEPS, *pytest_of(tmp_path, SLOW)]
    with started(command, stdout=subprocess.PIPE, text=True) as steps:
        until((tmp_path / "runs").exists)
        (run,) = children_of(steps.pid)
        steps.terminate()
        output = steps.communicate(timeout=PATIENCE)[0]
        assert steps.returncode == 128 + signal.SIGTERM
        assert "Stopped by SIGTERM" in output
        assert leftovers.left(run, set()) == {}


def test_killed_run_leaves_no_process_and_fails_its_step(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STEPS, *pytest_of(tmp_path, SLOW)]
    with started(command, stdout=subprocess.PIPE, text=True) as steps:
        until((tmp_path / "runs").exists)
        (run,) = children_of(steps.pid)
        os.kill(run, signal.SIGKILL)
        output = steps.communicate(timeout=PATIENCE)[0]
        assert (steps.returncode, output.splitlines()[-1]) == (1, "Failed: tests")
        assert leftovers.left(run, set()) == {}


@pytest.mark.full
def test_process_left_by_a_test_is_ended_and_reported(tmp_path: Path) -> None:
    with started(pytest_of(tmp_path, CARELESS), stdout=subprocess.PIPE, text=True) as run:
        output = run.communicate(timeout=PATIENCE)[0]
        assert leftovers.left(run.pid, set()) == {}
    left = output.partition("Failed: left running: ")[2].splitlines()[0]
    assert "sleep 1000" in left
    assert "fieldagent hub run" not in left
    assert "1 failed, 1 passed, 1 error" in output


@pytest.mark.parametrize(
    ("line", "passed", "failed"),
    [
        ("===== 2 failed, 31 passed, 4 deselected, 1 error in 12.34s (0:00:12) =====", 31, 3),
        (
            "\x1b[32m====== \x1b[32m\x1b[1m7 passed\x1b[0m\x1b[32m in 0.10s\x1b[0m ======\x1b[0m",
            7,
            0,
        ),
        ("12 passed, 3 failed", 12, 3),
        ("the kit passed, 3 failed in 1s", 0, 0),
    ],
)
def test_pytest_summary_line_is_parsed(line: str, passed: int, failed: int) -> None:
    counts = outcomes(line)
    assert (counts["passed"], counts["failed"]) == (passed, failed)


@pytest.mark.parametrize(
    ("path", "file", "belongs"),
    [
        ("fieldagent/extensions/desk/hub/mail.py", "tests/extensions/desk/test_contract.py", True),
        ("fieldagent/extensions/desk/hub/mail.py", "tests/hub/test_console.py", False),
        ("fieldagent/agent/outbound/queue.py", "tests/agent/outbound/test_queue.py", True),
        ("fieldagent/agent/outbound/queue.py", "tests/hub/test_journey.py", True),
        ("fieldagent/hub/console/console.js", "tests/hub/test_journey.py", False),
        ("tests/hub/test_patroni.py", "tests/hub/test_patroni.py", True),
        ("docs/start/first-hub.md", "tests/hub/test_journey.py", False),
    ],
)
def test_tests_are_selected_by_the_changed_file(path: str, file: str, belongs: bool) -> None:
    assert (file in touched.belonging([path])) == belongs


def test_selected_tests_stay_within_their_time_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched, "changed", lambda: ["tests/hub/test_a.py", "tests/hub/test_b.py"])
    monkeypatch.setattr(
        durations, "read", lambda: {"tests/hub/test_a.py": 9e9, "tests/hub/test_b.py": 1.0}
    )
    assert touched.files() == ["tests/hub/test_b.py"]
