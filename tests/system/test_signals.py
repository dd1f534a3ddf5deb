"""A signal at a moment at which it would do harm."""

from __future__ import annotations

import subprocess
import sys

ENDS = """
import sys
from types import SimpleNamespace

# Python's own takes what Python makes alone.
sys.unraisablehook = lambda told: print(told.exc_value, file=sys.stderr)

from fieldagent.system.signals import run_heeding

async def program(asks):
    pass

run_heeding(program)
for why in sys.argv[1:]:
    sys.unraisablehook(SimpleNamespace(
        exc_type=OSError, exc_value=OSError(why), exc_traceback=None, err_msg=None, object=None))
"""


def test_signal_at_the_end_is_not_reported_but_a_fault_is() -> None:
    messages = ("Signal 15 ignored due to race condition", "the disk is gone")
    done = subprocess.run(
        [sys.executable, "-c", ENDS, *messages], check=True, capture_output=True, text=True
    )
    assert "the disk is gone" in done.stderr
    assert "race condition" not in done.stderr


BROKEN_OFF = """
import signal
import trio
from fieldagent.system.signals import run_breakable

async def work():
    signal.raise_signal(signal.SIGINT)
    print("written", flush=True)
    await trio.sleep_forever()

try:
    run_breakable(work)
except KeyboardInterrupt:
    print("broken off")
"""


def test_ctrl_c_interrupts_a_waiting_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BROKEN_OFF], check=True, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == ["written", "broken off"]
