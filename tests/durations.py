"""The seconds of each test file in the last recorded run.

`tests/run full --record-durations` writes them. They determine the order of test files, and the
files that `.ci/run` chooses.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

FILE = Path(__file__).with_suffix(".txt")


def read() -> dict[str, float]:
    """Return the seconds of each listed file, by its path below the project's folder."""
    lines = FILE.read_text().splitlines()
    return {path: float(seconds) for seconds, path in (line.split() for line in lines)}


class Recorder:
    """A pytest plugin that adds up the test durations of each file, from all workers."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the durations of the files that have run to the list, and keep those of other
        files.
        """
        known = read() | self._seconds
        listed = sorted((-seconds, path) for path, seconds in known.items())
        FILE.write_text("".join(f"{-seconds:.0f} {path}\n" for seconds, path in listed))
