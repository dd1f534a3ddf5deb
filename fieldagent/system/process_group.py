"""Ends a command that we started, with everything that it started itself.

The command must have been started in a session of its own (`start_new_session`), so that its
process id is its group's too (setsid(2)).
"""

from __future__ import annotations

import os
import signal

import trio

GRACE = 5.0
"""Seconds from SIGTERM to SIGKILL, and from there until nobody waits any longer."""
POLL = 0.05
"""Seconds between two looks at a group; nothing tells when its last process ends."""


async def end_group(process: trio.Process) -> bool:
    """End it by SIGTERM, time to clear up, and SIGKILL. Return False where it outlives that: it
    runs as another user, or waits for a device."""
    with trio.CancelScope(shield=True):
        _signal_group(process, signal.SIGTERM)
        with trio.move_on_after(GRACE):
            await process.wait()
            while _signal_group(process, 0):
                await trio.sleep(POLL)
        _signal_group(process, signal.SIGKILL)
        with trio.move_on_after(GRACE):
            await process.wait()
    return process.returncode is not None


def _signal_group(process: trio.Process, number: int) -> bool:
    """False when nobody is left in it."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # all of it runs as somebody else, by sudo for one
        return True
    return True
