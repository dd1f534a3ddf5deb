"""Reads a password from a prompt. An argument is not accepted, because all users of the machine
could read it.
"""

from __future__ import annotations

import getpass
import sys

from fieldagent.system.exit_codes import USAGE
from fieldagent.system.log_lines import print_failure


def ask_password(secret_name: str = "Password") -> str:
    """Ask for a password twice on a terminal; otherwise read a line of standard input."""
    first = ask_once(secret_name)
    if sys.stdin.isatty() and first != getpass.getpass("Again: "):
        print_failure("the two are not the same")
        raise SystemExit(USAGE)
    return first


def ask_once(secret_name: str) -> str:
    """Ask for a secret with a prompt on a terminal; otherwise read a line of standard input."""
    if sys.stdin.isatty():
        return getpass.getpass(f"{secret_name}: ")
    return sys.stdin.readline().rstrip("\r\n")
