"""Name of a modem (AT+CGMM, TS 27.007, 4.2), for any kind of network."""

from __future__ import annotations

import re

QUESTION = b"AT+CGMM\r"
IRIDIUM = "IRIDIUM"
"""Part of the name of each Short Burst Data modem ("IRIDIUM 9600 Family SBD Transceiver")."""
_ANSWER = re.compile(rb"[\r\n]([ -~]+)[\r\n]+(?:OK|0)[\r\n]")


def find_model_name(data: bytes) -> str | None:
    """Return the name in a modem's answer, or None if there is none."""
    match = _ANSWER.search(b"\n" + data)
    if match is None:
        return None
    name = match[1].decode().partition("+CGMM:")
    return (name[2] or name[0]).strip().strip('"') or None
