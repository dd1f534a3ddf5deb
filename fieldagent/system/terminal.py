"""What people in the field wrote, shown on a terminal: nothing in it moves the cursor, clears the
screen, hides a word or begins a line."""

from __future__ import annotations

import re

_ACTS = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0 and C1: ESC, BEL, CSI and their like (ECMA-48)
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # order, hidden, lines
    "\ud800-\udfff]"  # halves of characters, which no terminal takes
)


def escaped(text: str) -> str:
    """Return one line, with what acts on a terminal shown as Python writes it: ESC as \\x1b."""
    return _ACTS.sub(lambda match: repr(match[0])[1:-1], text)


def escaped_lines(text: str) -> str:
    """Escape lines of ours as `escaped` does one."""
    return "\n".join(map(escaped, text.split("\n")))
