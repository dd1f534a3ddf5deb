"""`fieldagent reboot`."""

from __future__ import annotations

import argparse

from fieldagent.kit.reboot import take


def reboot(given: argparse.Namespace) -> int:
    return take(given.config)
