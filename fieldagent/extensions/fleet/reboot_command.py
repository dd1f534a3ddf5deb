"""`fieldagent reboot`."""

from __future__ import annotations

import argparse

from fieldagent.extensions.fleet.reboot import take_request


def reboot(arguments: argparse.Namespace) -> int:
    """Reboot the machine if the hub has asked for it, once; for root's unit."""
    return take_request(arguments.config)
