"""Writes the correct time to a file for root's unit if the system's clock is wrong.

The agent uses the correct time itself, but is not allowed to set the system's clock, which TLS and
other programs use (`kit.system_clock`).
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from fieldagent.system.elapsed_time import ElapsedTime
from fieldagent.system.folder import replace_file

log = logging.getLogger(__name__)

CLOCK_OFFER = "clock.offer"
"""File in the agent's state directory that contains the correct time."""


def offer_time(clock: ElapsedTime, state_directory: Path) -> None:
    """Write the correct time to the file if the system's clock is wrong and root's unit has
    processed the previous file.
    """
    offer_path = state_directory / CLOCK_OFFER
    reference = clock.find_better_time()
    if reference is None or offer_path.exists():
        return
    offer = {
        "source": reference.source,
        "boot": reference.boot,
        "sinceBoot": reference.since_boot,
        "unix": reference.unix,
    }
    try:
        replace_file(offer_path, json.dumps(offer).encode())
    except OSError as error:
        log.warning(
            "the time cannot be stored for the service that sets the system clock: %s", error
        )
