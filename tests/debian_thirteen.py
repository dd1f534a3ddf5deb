"""Runs third-party servers that need a later Python than Debian 12 has. Each has a separate Debian
13, because only one run at a time can use a Debian.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.machine import unavailable

ROOT = Path(__file__).parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fieldagent"
CANNOT = 77
"""Exit code of `build/debian` on a machine that cannot run it."""


class DebianThirteen:
    """The Debian 13 for the server `name`."""

    def __init__(self, name: str) -> None:
        self.environment = {"XDG_CACHE_HOME": str(CACHE / name)}

    def install(self, script: str) -> None:
        """Run a shell script that installs the server, which takes minutes at the first run."""
        done = subprocess.run(
            self.make_command(script),
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
        )
        if done.returncode == CANNOT:
            unavailable(done.stderr.strip())
        assert done.returncode == 0, done.stdout + done.stderr

    def make_command(self, script: str, *options: str) -> list[str]:
        """Return the command that runs a shell script in Debian 13, in `environment`."""
        return [str(ROOT / "build/debian"), *options, "trixie", "bash", "-euc", script]
