"""Errors of h11 about a peer's bytes, as text for people."""

from __future__ import annotations

import re

import h11

_SHOWN = re.compile(r"bytearray\(b(['\"])(.*)\1\)", re.DOTALL)


def in_words(error: h11.RemoteProtocolError) -> str:
    """Return h11's error with only the refused line, without Python's bytearray around it."""
    return _SHOWN.sub(lambda shown: shown[2].replace("\\'", "'"), str(error))
