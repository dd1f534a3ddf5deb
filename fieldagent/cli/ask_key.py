"""Takes a key from a person: asked for at a terminal, and otherwise a line of the input."""

from __future__ import annotations

import getpass
import sys

from fieldagent.system.exit_codes import USAGE
from fieldagent.system.log_lines import complain

KEY_BYTES = 32


def ask_key(name: str) -> bytes:
    """Return it; `name` is that of its setting. Raises SystemExit where it is none."""
    asked = getpass.getpass(f"{name}: ") if sys.stdin.isatty() else sys.stdin.readline()
    try:
        key = bytes.fromhex(asked.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        complain(f"a {name} has 64 hexadecimal digits")
        raise SystemExit(USAGE)
    return key
