"""Prevents tests from sending data to other machines, even if the tested code has errors.

The guard (`tests/started/loopback.py`) runs in the test process and in each Python that it starts,
because `started/` is first in their path. A started program that tries to send ends, and the test
fails. Other programs (a browser, a TNC) get only addresses of this machine.
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
    """Guard each Python that this process starts from now on."""
    os.environ["PYTHONPATH"] = path(os.environ.get("PYTHONPATH", ""))
    file, os.environ[REPORT] = tempfile.mkstemp(prefix="fieldagent-left-")
    # Some programs run as other users.
    _made_here.append(Path(os.environ[REPORT]))
    os.fchmod(file, 0o666)
    os.close(file)


def path(folders: str) -> str:
    """Return a PYTHONPATH with the guard before these folders."""
    return ":".join(filter(None, [str(STARTED), folders]))


def left() -> str:
    """Return and forget the reported attempts of started programs to leave this machine, one per
    line.
    """
    report = Path(os.environ[REPORT])
    if not report.stat().st_size:
        return ""
    text = report.read_text()
    report.write_text("")
    return text


def forget() -> None:
    """Remove the reports at the end of the tests."""
    for report in _made_here:
        report.unlink()
