"""Reads a password from a prompt. An argument is not accepted, because all users of the machine
could read it.
"""

from __future__ import annotations

import getpass
import sys

from fieldagent.system.exit_codes import USAGE
from fieldagent.system.log_lines import complain


def ask_password(what: str = "Password") -> str:
    """Ask for a password twice on a terminal; otherwise read a line of standard input."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    first = getpass.getpass(f"{what}: ")
    if first != getpass.getpass("Again: "):
        complain("the two are not the same")
        raise SystemExit(USAGE)
    return first
