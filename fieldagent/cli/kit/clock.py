"""`fieldagent clock`: sets the system's clock."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from fieldagent.kit.system_clock import set_clock
from fieldagent.system.elapsed_time import MachineClocks


def set_system_clock(arguments: argparse.Namespace) -> int:
    """Set the system's clock to the time in the agent's file. The command needs root. Return OK if
    there is no such file.
    """

    def set_realtime(unix: float) -> None:
        time.clock_settime(time.CLOCK_REALTIME, unix)

    # In the unit that runs as root, systemd sets this variable to a folder that only root can write
    # (RuntimeDirectory=).
    own = os.environ.get("RUNTIME_DIRECTORY")
    return set_clock(
        arguments.config,
        MachineClocks(),
        set_realtime,
        as_json=arguments.json,
        own_folder=None if own is None else Path(own),
    )
