"""Sees that no test sends anything past this machine, whatever the code under test believes.

The guard (`tests/started/loopback.py`) is in the process of the tests, and in each Python that they
start: `started/` is first in its path. What a started program would have sent ends that program and
fails the test. Programs of others (a browser, a TNC) are given addresses of this machine.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.started import loopback
from tests.started.loopback import REPORT

STARTED = Path(loopback.__file__).parent
_made_here: list[Path] = []


def hold_what_is_started() -> None:
    """From here on, each Python that this process starts."""
    os.environ["PYTHONPATH"] = path(os.environ.get("PYTHONPATH", ""))
    file, os.environ[REPORT] = tempfile.mkstemp(prefix="fieldagent-left-")
    # Some of them run as other users.
    _made_here.append(Path(os.environ[REPORT]))
    os.fchmod(file, 0o666)
    os.close(file)


def path(folders: str) -> str:
    """Return them as a PYTHONPATH that holds what is started with it."""
    return ":".join(filter(None, [str(STARTED), folders]))


def left() -> str:
    """Return what started programs would have sent since the last call, a line each."""
    report = Path(os.environ[REPORT])
    if not report.stat().st_size:
        return ""
    text = report.read_text()
    report.write_text("")
    return text


def forget() -> None:
    """At the end of the tests."""
    for report in _made_here:
        report.unlink()
