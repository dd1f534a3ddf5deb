"""Reads a key: at a prompt on a terminal, otherwise from a line of standard input."""

from __future__ import annotations

from fieldagent.cli.ask_password import ask_once
from fieldagent.system.exit_codes import USAGE
from fieldagent.system.log_lines import print_failure

KEY_BYTES = 32


def ask_key(name: str) -> bytes:
    """Ask for the key of the setting `name`, and return it. Raises SystemExit if the key is
    invalid.
    """
    try:
        key = bytes.fromhex(ask_once(name).strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        print_failure(f"a {name} has 64 hexadecimal digits")
        raise SystemExit(USAGE)
    return key
