"""Ends a command that we started, with all of its child processes.

The command must have been started in a new session (`start_new_session`), so that its process id is
also the id of its group (setsid(2)).
"""

from __future__ import annotations

import os
import signal

import trio

GRACE_S = 5.0
"""Seconds from SIGTERM to SIGKILL, and seconds after that until the wait ends."""
POLL_INTERVAL_S = 0.05
"""Seconds between two checks of a group. There is no notification when the last process of a group
ends."""


async def end_group(process: trio.Process) -> bool:
    """End the group: send SIGTERM, wait for `GRACE_S`, and then send SIGKILL. Return False if a
    process survives, because it runs as another user or waits for a device.
    """
    with trio.CancelScope(shield=True):
        _signal_group(process, signal.SIGTERM)
        with trio.move_on_after(GRACE_S):
            await process.wait()
            while _signal_group(process, 0):
                await trio.sleep(POLL_INTERVAL_S)
        _signal_group(process, signal.SIGKILL)
        with trio.move_on_after(GRACE_S):
            await process.wait()
    return process.returncode is not None


def _signal_group(process: trio.Process, number: int) -> bool:
    """Send a signal to the group. Return False if no process is left in the group."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    # The group still exists, but all its processes run as another user, for example through sudo.
    except PermissionError:
        return True
    return True
