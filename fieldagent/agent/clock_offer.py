"""Leaves for root's unit what the agent was told of the time, where the system's clock is wrong.

The agent goes by it itself and may set no clock; TLS and whatever else runs here go by the
system's (`kit.system_clock`).
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from fieldagent.system.folder import put_file
from fieldagent.system.lived_time import LivedTime

log = logging.getLogger(__name__)

CLOCK_OFFER = "clock.offer"
"""In the agent's state directory: what the time is, where the system's clock is wrong."""


def leave(clock: LivedTime, state_directory: Path) -> None:
    """Leave it where the system's clock is wrong and the last was taken."""
    place = state_directory / CLOCK_OFFER
    reference = clock.better()
    if reference is None or place.exists():
        return
    offer = {
        "source": reference.source,
        "boot": reference.boot,
        "sinceBoot": reference.since_boot,
        "unix": reference.unix,
    }
    try:
        put_file(place, json.dumps(offer).encode())
    except OSError as error:
        log.warning("the time cannot be left for the system's clock: %s", error)
