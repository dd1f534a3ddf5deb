"""`fieldagent provision`."""

from __future__ import annotations

import argparse
from contextlib import suppress

from fieldagent.agent.settings import INSTALLED
from fieldagent.kit import provision as on_card
from fieldagent.system.exit_codes import MISSING
from fieldagent.system.log_lines import complain


def provision(given: argparse.Namespace) -> int:
    """Take the settings that wait on the card. MISSING where what is named is no folder."""
    # What may not be looked at is told below.
    with suppress(OSError):
        if given.card and not given.card.is_dir():
            complain(f"{given.card} is no folder: mount the card's boot partition, and name that")
            return MISSING
    folders = [given.card] if given.card else on_card.BOOT
    return on_card.provision(folders, given.config or INSTALLED, as_json=given.json)
