"""Safe display of untrusted text on a terminal: it cannot move the cursor, clear the screen, hide a
word or begin a line.
"""

from __future__ import annotations

import re

_ACTS = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0 and C1: ESC, BEL, CSI and their like (ECMA-48)
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff]"  # halves of characters, which no terminal can show
)


def escaped(text: str) -> str:
    r"""Return one line with control characters in Python's form, such as ESC as \x1b."""
    return _ACTS.sub(lambda match: repr(match[0])[1:-1], text)


def escaped_lines(text: str) -> str:
    """Return our own lines, each escaped like `escaped`."""
    return "\n".join(map(escaped, text.split("\n")))
