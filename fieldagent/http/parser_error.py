"""What h11 finds wrong with a peer's bytes, as its texts are shown to people."""

from __future__ import annotations

import re

import h11

_SHOWN = re.compile(r"bytearray\(b(['\"])(.*)\1\)", re.DOTALL)


def in_words(error: h11.RemoteProtocolError) -> str:
    """Return what h11 says of a line that it refuses, with the line alone: h11 shows it as Python's
    bytearray."""
    return _SHOWN.sub(lambda shown: shown[2].replace("\\'", "'"), str(error))
