"""The other Debian for tests is kept, but leftovers of a run do not affect later ones."""

from __future__ import annotations

import subprocess

import pytest

from tests.machine import unavailable
from tests.shipping.conftest import CANNOT, ROOT

LEFT = ("/usr/local/bin/systemctl", "/usr/local/sbin/dpkg", "/run/systemd/system", "/tmp/asked")
"""Leftovers of a package trial that ends between making its stand-ins and removing them."""


def in_debian(script: str) -> str:
    done = subprocess.run(
        [ROOT / "build/debian", "bookworm", "sh", "-euc", script], capture_output=True, text=True
    )
    if done.returncode == CANNOT:
        unavailable(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_leftovers_of_a_stopped_run_are_removed() -> None:
    made = "\n".join(f"install -D -m 755 /dev/null {each}/left" for each in LEFT)
    assert in_debian(f"{made}\necho made") == "made\n"
    shown = "\n".join(f"! [ -e {each} ] || echo {each}" for each in LEFT)
    assert in_debian(f"{shown}\nls -d /usr/local/bin /tmp") == "/tmp\n/usr/local/bin\n"
