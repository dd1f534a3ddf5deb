"""`fieldagent provision`."""

from __future__ import annotations

import argparse

from fieldagent.agent.settings import INSTALLED
from fieldagent.kit import provision as on_card


def provision(given: argparse.Namespace) -> int:
    folders = [given.card] if given.card else on_card.BOOT
    return on_card.provision(folders, given.config or INSTALLED, as_json=given.json)
