"""`fieldagent provision`: applies the settings on the card."""

from __future__ import annotations

import argparse
from contextlib import suppress

from fieldagent.agent.settings import INSTALLED
from fieldagent.kit import provision as on_card
from fieldagent.system.exit_codes import MISSING
from fieldagent.system.log_lines import print_failure


def provision(arguments: argparse.Namespace) -> int:
    """Apply the settings that wait on the card. Return MISSING if the argument is not a folder."""
    # The code below reports a folder that cannot be accessed.
    with suppress(OSError):
        if arguments.card and not arguments.card.is_dir():
            print_failure(
                f"{arguments.card} is not a folder: mount the card's boot partition, and use"
                " its path"
            )
            return MISSING
    folders = [arguments.card] if arguments.card else on_card.BOOT
    return on_card.provision(folders, arguments.config or INSTALLED, as_json=arguments.json)
