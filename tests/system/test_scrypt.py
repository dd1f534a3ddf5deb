"""The memory cost of a password guess, for any caller."""

from __future__ import annotations

import subprocess
import sys

GUESS = 16 * 1024
"""KiB of scrypt per guess."""
CALLERS = 12
ALL_AT_ONCE = f"""
import threading
from fieldagent.system.scrypt import check_password

def most():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

def guess():
    together.wait()
    check_password("a guess", None)

together = threading.Barrier({CALLERS})
before = most()
callers = [threading.Thread(target=guess) for _ in range({CALLERS})]
for each in callers:
    each.start()
for each in callers:
    each.join()
print(most() - before)
"""


def test_memory_of_concurrent_password_checks_is_limited() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALL_AT_ONCE], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 4 * GUESS
