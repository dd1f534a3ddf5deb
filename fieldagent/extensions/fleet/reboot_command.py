"""`fieldagent reboot`: reboots the machine on request of the hub."""

from __future__ import annotations

import argparse

from fieldagent.extensions.fleet.reboot import process_request


def reboot(arguments: argparse.Namespace) -> int:
    """Reboot the machine once if the hub has requested this. Only root's unit calls this
    command.
    """
    return process_request(arguments.config)
