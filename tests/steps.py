"""The steps of `tests/run`, one after the other, whichever fails.

Ctrl-C and SIGTERM end the step that runs: pytest ends what its tests started. What is left then all
the same is a child of this process, which adopts orphans, and is ended here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from tests import leftovers

BIN = Path(sys.executable).parent
PYTHON = "python"
WORKERS = str(7 * (os.cpu_count() or 1) // 2)
"""Tests wait for most of their time. A file's tests share what it sets up, and stay together. The
files' order is `conftest`'s."""
PYTEST = (PYTHON, "-m", "pytest", "-n", WORKERS, "--dist", "loadfile", "--no-loadscope-reorder")
ZIPAPP = ("zipapp", "build/zipapp")
SCRIPTS = ("build/zipapp", "build/deb", "build/release", "systemd/first-settings")
"""Python by its first line, and not by its name."""
MODULES = tuple(
    f"build/{name}.py"
    for name in (
        *("api_page", "archive", "bare", "bytecode", "handbook", "program"),
        *("signing", "system", "version", "web_site", "world"),
    )
)
COLLECTED = ("collection", PYTHON, "-m", "pytest", "--collect-only", "-qqq")
"""It leaves the tests' compiled code behind: without that each worker compiles all of them. What it
says is shown where it fails."""
TESTS = ("tests", *PYTEST)
TYPES = ("types", "mypy", "--scripts-are-modules", "fieldagent", "tests", *SCRIPTS, *MODULES)
"""Runs beside the steps that follow, as it keeps one processor busy alone."""
CHECKS = (
    TYPES,
    ZIPAPP,
    ("lint", "ruff", "check", ".", *SCRIPTS),
    ("format", "ruff", "format", "--check", ".", *SCRIPTS),
    ("layers", PYTHON, "-m", "tests.layers"),
    ("sizes", PYTHON, "-m", "tests.sizes"),
    COLLECTED,
    TESTS,
)
NEWER = (
    *("tests/http", "tests/webhook", "tests/cli", "tests/system"),
    "tests/shipping/test_install.py",
    *("tests/agent/journal", "tests/agent/inbound"),
    *("tests/agent/test_agent.py", "tests/agent/test_linked_agent.py"),
    *(
        f"tests/hub/test_{name}.py"
        for name in (
            *("drain", "ip_link", "journey", "large_database", "lease"),
            *("push_api", "store", "tls", "webhooks"),
        )
    ),
)
"""What touches TLS, SQLite, subprocesses, Debian's folders and the terminal. The zipapp is
built there and installed; what is in it meets Debian 13's Python among the other tests."""
EXPLORED = [
    word
    for name in (
        *("http/test_openapi.py", "cli/test_root.py", "cli/test_setup.py", "cli/test_radio.py"),
        *("cli/test_track_gpsfake.py", "cli/test_system_update.py", "cli/test_trial.py"),
        *("cli/test_settings_trial.py", "cli/test_update_offer.py"),
        "agent/inbound/test_sos_first.py",
    )
    for word in ("--ignore", f"tests/{name}")
]
"""What takes long, and meets the same of each Python."""
IMAGE = [
    f"tests/shipping/test_{name}.py"
    for name in (
        "image",
        "card_cuts",
        "pi_start",
        "pi_card",
        "pi_slots",
        "system_update",
        "card_network",
    )
]
MARKED = (PYTHON, "-m", "pytest", "-m")
HALF = ("timeout", "--signal=INT", "--kill-after=60", "1800")
"""Of an hour."""
BOTH = ("-n", "2", "--dist", "loadfile")
"""At once: an emulated board keeps one processor busy."""
KINDS = {
    "ci": (
        ("Debian 13", "build/debian", "trixie", "tests/run", "tests", *NEWER, *EXPLORED),
        ("cards", *HALF, *MARKED, "card", *BOTH, "--durations=15", *IMAGE[:3]),
        *CHECKS,
    ),
    "tests": (ZIPAPP, COLLECTED, TESTS),
    "long": (ZIPAPP, ("long tests", *MARKED, "long or card")),
    "image": (("image", *MARKED, "long or card", *IMAGE),),
    "fuzz": (("fuzz", PYTHON, "-m", "tests.fuzz"),),
    "bench": (ZIPAPP, ("bench", PYTHON, "-m", "tests.bench")),
}
"""The last step of each takes the arguments, and the collection of what it runs."""

CANNOT = 77
"""The exit code of a step that this machine cannot take; it has said why."""
GRACE = 10.0
"""Seconds that what is left has between SIGTERM and SIGKILL."""


class Steps:
    def __init__(self) -> None:
        self.stopped = 0
        """By which signal."""
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._beside: dict[str, IO[bytes]] = {}
        """What those say that run beside others, until they have ended."""

    def stop(self, number: int, _: FrameType | None) -> None:
        self.stopped = number
        for running in self._running.values():
            # What Python, ruff and pytest end at, in order.
            running.send_signal(signal.SIGINT)

    def run(self, name: str, *command: str) -> int:
        """The exit code."""
        print(f"\n== {name}", flush=True)
        if name != COLLECTED[0]:
            return self._begin(name, command, None).wait()
        with tempfile.TemporaryFile() as said:
            if code := self._begin(name, command, said).wait():
                said.seek(0)
                print(said.read().decode(), flush=True)
            return code

    def run_beside(self, name: str, *command: str) -> None:
        # Open until `end`.
        self._beside[name] = tempfile.TemporaryFile()  # noqa: SIM115
        self._begin(name, command, self._beside[name])

    def end(self) -> dict[str, int]:
        """Wait for what runs beside, and show what it said; the exit codes come back."""
        codes = {}
        for name, said in self._beside.items():
            codes[name] = self._running[name].wait()
            said.seek(0)
            print(f"\n== {name}", said.read().decode(), sep="\n", end="", flush=True)
            said.close()
        return codes

    def _begin(
        self, name: str, command: Sequence[str], output: IO[bytes] | None
    ) -> subprocess.Popen[bytes]:
        # In a group of its own: a terminal's Ctrl-C comes once, and from here.
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "process_group": 0}
        if output is not None:
            how |= {"stdout": output, "stderr": subprocess.STDOUT}
        self._running[name] = subprocess.Popen(command, **how)
        return self._running[name]


def main(arguments: list[str]) -> int:
    chosen = KINDS.get(arguments[0] if arguments else "", CHECKS)
    if chosen is not CHECKS:
        arguments = arguments[1:]
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    # Tests start the program by thousands: without its compiled code each takes half as long again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    leftovers.adopt_orphans()
    steps = Steps()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, steps.stop)
    codes: dict[str, int] = {}
    for name, *command in chosen:
        options = arguments if name in (COLLECTED[0], chosen[-1][0]) else ()
        if steps.stopped:
            break
        if name == TYPES[0]:
            steps.run_beside(name, *command)
        else:
            codes[name] = steps.run(name, *command, *options)
    codes |= steps.end()
    end_orphans()
    if steps.stopped:
        print(f"\nStopped by {signal.Signals(steps.stopped).name}")
        return 128 + steps.stopped
    skipped = [name for name, code in codes.items() if code == CANNOT]
    failed = [name for name, code in codes.items() if code not in (0, CANNOT)]
    if skipped:
        print(f"\nSkipped: {', '.join(skipped)}")
    print(f"\nFailed: {', '.join(failed)}" if failed else "\nChecks and tests passed")
    return 1 if failed else 0


def end_orphans() -> None:
    """Children of orphans become orphans in their turn."""
    began = time.monotonic()
    while children := _children():
        number = signal.SIGTERM if time.monotonic() - began < GRACE else signal.SIGKILL
        for pid in children:
            os.kill(pid, number)
        time.sleep(0.1)
        for pid in children:
            os.waitpid(pid, os.WNOHANG)


def _children() -> list[int]:
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in task.read_text().split()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
