"""If the system's clock is wrong, writes the right time to a file for root's unit.

The agent uses that time itself but may not set the clock; TLS and other programs use the system's
clock (`kit.system_clock`).
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from fieldagent.system.elapsed_time import ElapsedTime
from fieldagent.system.folder import replace_file

log = logging.getLogger(__name__)

CLOCK_OFFER = "clock.offer"
"""File in the agent's state directory with the right time."""


def offer_time(clock: ElapsedTime, state_directory: Path) -> None:
    """Write the right time to the file if the system's clock is wrong and root's unit has taken the
    last offer.
    """
    place = state_directory / CLOCK_OFFER
    reference = clock.find_better_time()
    if reference is None or place.exists():
        return
    offer = {
        "source": reference.source,
        "boot": reference.boot,
        "sinceBoot": reference.since_boot,
        "unix": reference.unix,
    }
    try:
        replace_file(place, json.dumps(offer).encode())
    except OSError as error:
        log.warning(
            "the time cannot be stored for the service that sets the system clock: %s", error
        )
