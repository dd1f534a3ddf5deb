"""Runs the steps of `tests/run` in order. A step that fails does not stop the others.

Ctrl-C, SIGTERM and SIGHUP stop the running steps: pytest ends the programs that its tests have
started. This process adopts orphaned processes and ends them.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any

from tests import leftovers, machine, touched

BIN = Path(sys.executable).parent
PYTHON = "python"
WORKERS = str(5 * (os.cpu_count() or 1) // 2)
"""Number of test workers: 2.5 per processor, because tests often wait."""
PYTEST = (PYTHON, "-m", "pytest", "-n", WORKERS, "--dist", "loadfile", "--no-loadscope-reorder")
FULL = ("-m", "not soak")
MACHINES = (
    "emulated machines",
    *(PYTHON, "-m", "pytest", "-n", str(os.cpu_count() or 1)),
    *("--dist", "loadfile", "--no-loadscope-reorder", "-m", "machine and not soak"),
)
"""Step for tests marked `machine`, one per processor. With more of them, systemd units in the
emulated machines would time out."""
ZIPAPP = ("zipapp", "build/zipapp")
SCRIPTS = (
    *("build/zipapp", "build/deb", "build/drill_reports", "build/release"),
    "systemd/first-settings",
)
"""Python scripts whose names have no ending."""
MODULES = tuple(
    f"build/{name}.py"
    for name in (
        *("api_page", "archive", "bare", "bytecode", "description", "handbook", "program"),
        *("signing", "system", "version", "web_site", "world"),
    )
)
COLLECTED = ("collection", PYTHON, "-m", "pytest", "--collect-only", "-qqq")
"""Step that compiles the tests once, because otherwise each worker would compile all of them. Its
output appears only if it fails."""
TYPES = ("types", "mypy", "--scripts-are-modules", "fieldagent", "tests", *SCRIPTS, *MODULES)
"""Step that checks types. It runs in parallel with the steps after it, because mypy uses only one
processor."""
CHECKS = (
    TYPES,
    ZIPAPP,
    ("lint", "ruff", "check", ".", *SCRIPTS),
    ("format", "ruff", "format", "--check", ".", *SCRIPTS),
    ("layers", PYTHON, "-m", "tests.layers"),
    ("sizes", PYTHON, "-m", "tests.sizes"),
)
TESTS = (COLLECTED, ("tests", *PYTEST))
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
"""Tests of TLS, SQLite, subprocesses, Debian's folders and the terminal. They also run on Debian
13, which has a newer Python than Debian 12."""
CARD = (
    "tests/shipping/test_image.py::test_first_boot_applies_the_settings_from_the_card",
    "tests/shipping/test_image.py::test_message_is_delivered_and_the_hook_receives_one",
)
KINDS = {
    "checks": CHECKS,
    "full": (
        *CHECKS,
        (*COLLECTED, *FULL),
        ("tests", *PYTEST, "-m", "not soak and not machine"),
        MACHINES,
    ),
    "soak": (ZIPAPP, ("soak", PYTHON, "-m", "pytest", "-m", "soak")),
    "ci": (
        ("Debian 13", "build/debian", "trixie", "tests/run", "tests", *NEWER),
        *CHECKS,
        *TESTS,
        ("start from a card", *PYTEST, *FULL, *CARD),
        ("tests of the change", *PYTEST, "-m", "full and not soak and not machine"),
    ),
    "tests": (ZIPAPP, *TESTS),
    "fuzz": (("fuzz", PYTHON, "-m", "tests.fuzz"),),
    "bench": (ZIPAPP, ("bench", PYTHON, "-m", "tests.bench")),
}
"""The steps `collection`, `tests`, `emulated machines` and the step with the kind's name get the
arguments."""
TOUCHED = KINDS["ci"][-1][0]

NO_TESTS = 5
"""The exit code of pytest if it selects no test."""
CANNOT = 77
"""The exit code of a step that this machine cannot run. The step has printed the reason."""
GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL for remaining child processes."""
SUMMARY = re.compile(r"^=+ (?P<of_pytest>.*) in [\d.]+s.*=+$|^(?P<of_steps>\d+ passed, \d+ failed)")
COUNT = re.compile(r"(\d+) (passed|failed|errors?)\b")


def outcomes(line: str) -> Counter[str]:
    """Return the counts in the closing line of pytest or of these steps, empty for any other line.

    An error of a fixture counts as a failed test.
    """
    match = SUMMARY.match(re.sub(r"\x1b\[[\d;]*m", "", line))
    counts: Counter[str] = Counter()
    if match:
        for number, name in COUNT.findall(match["of_pytest"] or match["of_steps"]):
            counts["passed" if name == "passed" else "failed"] += int(number)
    return counts


class Steps:
    def __init__(self) -> None:
        self.stopped = 0
        """The signal that ended the run."""
        self.counts: Counter[str] = Counter()
        """Tests that passed and failed, in all steps."""
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._beside: dict[str, IO[bytes]] = {}
        """Output of steps that run in parallel, until they have ended."""

    def stop(self, number: int, _: FrameType | None) -> None:
        self.stopped = number
        for running in self._running.values():
            # Python, ruff and pytest end in order at SIGINT.
            running.send_signal(signal.SIGINT)

    def run(self, name: str, *command: str) -> int:
        """Run a step and return its exit code."""
        print(f"\n== {name}", flush=True)
        if name == COLLECTED[0]:
            with tempfile.TemporaryFile() as output:
                if code := self._begin(name, command, output).wait():
                    output.seek(0)
                    print(output.read().decode(), flush=True)
                return code
        if "pytest" not in command and "build/debian" not in command:
            return self._begin(name, command, None).wait()
        if sys.stdout.isatty() and "pytest" in command:
            command = (*command, "--color=yes")
        process = self._begin(name, command, subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout as output:
            self._pass_on(process, output.fileno())
        return process.wait()

    def _pass_on(self, process: subprocess.Popen[bytes], output: int) -> None:
        """Print what a step prints and count its tests, until the step has ended.

        An orphan of a killed step can hold the output open, so the end of the step ends this, too.
        """
        line = b""
        while True:
            has_ended = process.poll() is not None
            self._reap()
            if not select.select([output], [], [], 0 if has_ended else 0.1)[0]:
                if has_ended:
                    return
                continue
            if not (data := os.read(output, 1 << 16)):
                return
            os.write(sys.stdout.fileno(), data)
            *lines, line = (line + data).split(b"\n")
            for each in lines:
                self.counts += outcomes(each.decode(errors="replace"))

    def _reap(self) -> None:
        """Reap adopted processes that have ended. Programs such as Patroni wait until their orphans
        are gone, and a zombie is not gone."""
        own = {each.pid for each in self._running.values()}
        for pid in set(_children()) - own:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def run_beside(self, name: str, *command: str) -> None:
        # Open until `end`.
        self._beside[name] = tempfile.TemporaryFile()  # noqa: SIM115
        self._begin(name, command, self._beside[name])

    def end(self) -> dict[str, int]:
        """Wait for the steps that run in parallel, print their output and return their codes."""
        codes = {}
        for name, output in self._beside.items():
            codes[name] = self._running[name].wait()
            output.seek(0)
            print(f"\n== {name}", output.read().decode(), sep="\n", end="", flush=True)
            output.close()
        return codes

    def _begin(
        self, name: str, command: Sequence[str], output: IO[bytes] | int | None
    ) -> subprocess.Popen[bytes]:
        # A process group of its own, so that Ctrl-C reaches the step once, from `stop`.
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "process_group": 0}
        if output is not None:
            how |= {"stdout": output, "stderr": subprocess.STDOUT}
        self._running[name] = subprocess.Popen(command, **how)
        return self._running[name]


def main(arguments: list[str]) -> int:
    kind = arguments[0] if arguments and arguments[0] in KINDS else ""
    chosen = KINDS[kind] if kind else (*CHECKS, *TESTS)
    if kind:
        arguments = arguments[1:]
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    # Tests start the program thousands of times. Without bytecode each start takes 50 % longer.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if kind in ("full", "soak"):
        os.environ[machine.COMPLETE] = "1"
    leftovers.adopt_orphans()
    steps = Steps()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, steps.stop)
    codes: dict[str, int] = {}
    for name, *command in chosen:
        if steps.stopped:
            break
        if name == TYPES[0]:
            steps.run_beside(name, *command)
            continue
        if name in (COLLECTED[0], TESTS[-1][0], MACHINES[0], kind):
            command += arguments
        elif name == TOUCHED:
            files = touched.files()
            if not files:
                continue
            command += files
        code = steps.run(name, *command)
        if (name, *command) == ZIPAPP and code == 0:
            os.environ[machine.BUILT] = "1"
        # Accept that the files of a change contain no test that is marked `full`.
        codes[name] = 0 if name == TOUCHED and code == NO_TESTS else code
    codes |= steps.end()
    end_orphans()
    # Accept that one of the two steps has no tests, because the arguments may name only files of
    # the other.
    both = {name: codes[name] for name in (TESTS[-1][0], MACHINES[0]) if name in codes}
    if 0 in both.values():
        codes |= {name: 0 for name, code in both.items() if code == NO_TESTS}
    if steps.stopped:
        print(f"\nStopped by {signal.Signals(steps.stopped).name}")
        return 128 + steps.stopped
    skipped = [name for name, code in codes.items() if code == CANNOT]
    failed = [name for name, code in codes.items() if code not in (0, CANNOT)]
    if skipped:
        print(f"\nSkipped: {', '.join(skipped)}")
    print(f"\nFailed: {', '.join(failed)}" if failed else "\nAll steps passed")
    if steps.counts:
        print(f"{steps.counts['passed']} passed, {steps.counts['failed']} failed")
    return 1 if failed else 0


def end_orphans() -> None:
    """End adopted processes, and their orphans in turn."""
    began = time.monotonic()
    while children := _children():
        number = signal.SIGTERM if time.monotonic() - began < GRACE_S else signal.SIGKILL
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
