"""The recovery command: what a user knows that brings a stuck modem back."""

from __future__ import annotations

import logging
import subprocess

import trio

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.process_group import end_group

log = logging.getLogger(__name__)

DEADLINE = 120.0
"""Seconds; shorter than the silence after which the agent is thought dead."""


@dataclass(frozen=True, slots=True)
class Recovery:
    command: str
    after: float
    """Seconds out of reach before it is run, and between two runs."""


async def recover(command: str) -> None:
    """Run it through /bin/sh in its own process group; what it prints goes to our log's place."""
    log.warning("the hub stays out of reach: running cellular-recovery-command")
    try:
        process = await trio.lowlevel.open_process(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        log.error("cellular-recovery-command could not be started: %s", error)
    else:
        await _attend(process)


async def _attend(process: trio.Process) -> None:
    with trio.move_on_after(DEADLINE) as deadline:
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                await end_group(process)
    if deadline.cancelled_caught:
        log.error("cellular-recovery-command did not end within %g s and was ended", DEADLINE)
    elif process.returncode:
        log.error("cellular-recovery-command failed (exit %d)", process.returncode)
    else:
        log.info("cellular-recovery-command has ended")
