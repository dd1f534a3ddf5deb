"""Helpers for tests that run as root and as another user: a folder that both can reach, and a
Python that the other user may run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests import offline
from tests.machine import unavailable

UID = 64_242
"""The agent's user, which has no name in the system."""
ROOT = Path(__file__).parents[1]
PACKAGES = sysconfig.get_paths()["purelib"]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": offline.path(f"{ROOT}:{PACKAGES}"),
    "PYTHONDONTWRITEBYTECODE": "1",
}


@contextmanager
def open_place() -> Iterator[Path]:
    """Yield a folder of root that all users may enter. pytest's own folders are only for root."""
    if os.geteuid():
        unavailable("only root can become another user")
    place = Path(tempfile.mkdtemp(prefix="fieldagent-"))
    place.chmod(0o755)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def python() -> str:
    """Return a Python that can import after it becomes another user. That of a virtual environment
    may be in root's home.
    """
    ask = "import sys, trio; sys.exit(sys.version_info < (3, 11))"
    theirs: dict[str, Any] = {"user": UID, "group": UID, "extra_groups": [], "cwd": "/"}
    for each in (sys.executable, "/usr/bin/python3"):
        with suppress(OSError):
            done = subprocess.run([each, "-c", ask], env=ENVIRONMENT, capture_output=True, **theirs)
            if done.returncode == 0:
                return each
    return unavailable("no Python 3.11 that users other than root may run: apt-get install python3")
