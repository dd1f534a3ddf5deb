"""Runs a channel's recovery command: a user's own command that brings back a stuck modem."""

from __future__ import annotations

import logging
import subprocess

import trio

from fieldagent.system.process_group import end_group

log = logging.getLogger(__name__)

DEADLINE = 120.0
"""Seconds for the command; less than the silence after which the watchdog considers the
agent dead."""


async def run_command(setting: str, command: str) -> None:
    """Run the command of this setting through /bin/sh in its own process group. Its output goes to
    the agent's log.
    """
    try:
        process = await trio.lowlevel.open_process(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        log.error("%s could not be started: %s", setting, error)
    else:
        await _attend(setting, process)


async def _attend(setting: str, process: trio.Process) -> None:
    with trio.move_on_after(DEADLINE) as deadline:
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                await end_group(process)
    if deadline.cancelled_caught:
        log.error("%s did not end within %g s and was ended", setting, DEADLINE)
    elif process.returncode:
        log.error("%s failed (exit %d)", setting, process.returncode)
    else:
        log.info("%s has ended", setting)
