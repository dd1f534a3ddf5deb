"""`fieldagent clock`."""

from __future__ import annotations

import argparse
import time

from fieldagent.kit.system_clock import set_clock
from fieldagent.system.lived_time import MachineClocks


def clock(arguments: argparse.Namespace) -> int:
    """Set the system's clock by what the agent has left, which takes root; OK where it has left
    nothing."""

    def put(unix: float) -> None:
        time.clock_settime(time.CLOCK_REALTIME, unix)

    return set_clock(arguments.config, MachineClocks(), put, as_json=arguments.json)
