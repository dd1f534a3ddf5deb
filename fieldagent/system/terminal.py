"""Shows text on a terminal. Untrusted text cannot move the cursor, clear the screen, hide a word or
begin a line. State words are shown in colour.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from datetime import datetime

_CONTROL_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # Control characters of C0 and C1, such as ESC, BEL and CSI (ECMA-48).
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff]"  # Surrogates, which no terminal can show.
)


def escape_line(text: str) -> str:
    r"""Return one line with control characters in Python's form, such as ESC as \x1b."""
    return _CONTROL_CHARACTERS.sub(lambda match: repr(match[0])[1:-1], text)


def escape_lines(text: str) -> str:
    """Return our own lines, each escaped like `escape_line`."""
    return "\n".join(map(escape_line, text.split("\n")))


_MARKS = {"green": "\ufdd0", "yellow": "\ufdd1", "red": "\ufdd2"}
"""Characters that mark the colour of the word after them. Texts do not contain them, because
Unicode defines them as noncharacters."""
_SGR = {"\ufdd0": "\x1b[32m", "\ufdd1": "\x1b[33m", "\ufdd2": "\x1b[31m"}
_MARKED_TEXT = re.compile("([\ufdd0-\ufdd2])([^\ufdd0-\ufdd2\n]*?)(\ufdd3|$)", re.MULTILINE)
_END = "\ufdd3"
_COLOURS = {
    word: colour
    for colour, words in {
        "green": ("ok", "ready", "Delivered", "delivered", "handed", "done", "acknowledged"),
        "yellow": (
            *("waits", "waiting", "queued", "packed", "sent", "starting", "no service", "busy"),
            *("Collapsed", "collapsed", "Canceled", "canceled", "expired"),
        ),
        "red": ("BAD", "Error", "error", "failed", "dead", "absent", "fault", "refused", "open"),
    }.items()
    for word in words
}


def format_state(state: str, width: int = 0) -> str:
    """Return `state`, padded with blanks to `width` characters. If the state has a colour, add the
    marks that `format_lines` replaces by the colour.
    """
    colour = _COLOURS.get(state)
    filled = " " * (width - len(state))
    return f"{_MARKS[colour]}{state}{_END}{filled}" if colour else state + filled


def format_lines(text: str, stream: int = 1) -> str:
    """Return our own lines for the file descriptor `stream`: escaped, and with words for a state in
    colour.
    """
    escaped = escape_lines(text)
    if not has_colours(stream):
        return _MARKED_TEXT.sub(r"\2", escaped)
    return _MARKED_TEXT.sub(lambda match: f"{_SGR[match[1]]}{match[2]}\x1b[0m", escaped)


def has_colours(stream: int) -> bool:
    """Return True if the file descriptor is a terminal with colours and the user has not declined
    them (no-color.org).
    """
    return os.isatty(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def get_terminal_width() -> int | None:
    """Return the columns of the terminal on standard output, or None if standard output is not a
    terminal.
    """
    return shutil.get_terminal_size().columns if os.isatty(1) else None


def format_local_time(unix: float) -> str:
    """Return a Unix time in the machine's time zone, in seconds, without the date if it is today.
    The environment variable TZ selects another zone (tzset(3)).
    """
    moment, now = (datetime.fromtimestamp(at).astimezone() for at in (int(unix), time.time()))
    form = "%H:%M:%S" if moment.date() == now.date() else "%Y-%m-%d %H:%M:%S"
    return moment.strftime(form)
