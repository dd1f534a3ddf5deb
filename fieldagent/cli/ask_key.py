"""Reads a key: with a prompt at a terminal, otherwise as a line of standard input."""

from __future__ import annotations

import getpass
import sys

from fieldagent.system.exit_codes import USAGE
from fieldagent.system.log_lines import complain

KEY_BYTES = 32


def ask_key(name: str) -> bytes:
    """Return the key. `name` is its setting. Raises SystemExit if the key is invalid."""
    asked = getpass.getpass(f"{name}: ") if sys.stdin.isatty() else sys.stdin.readline()
    try:
        key = bytes.fromhex(asked.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        complain(f"a {name} has 64 hexadecimal digits")
        raise SystemExit(USAGE)
    return key
