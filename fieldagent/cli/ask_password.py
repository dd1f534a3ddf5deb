"""A password, asked for: never an argument, which every user of the machine could read."""

from __future__ import annotations

import getpass
import sys

from fieldagent.system.exit_codes import USAGE
from fieldagent.system.log_lines import complain


def ask_password(what: str = "Password") -> str:
    """Ask for it twice on a terminal, and read a line of standard input elsewhere."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    first = getpass.getpass(f"{what}: ")
    if first != getpass.getpass("Again: "):
        complain("the two are not the same")
        raise SystemExit(USAGE)
    return first
