"""Question that shows if an IMT modem is present."""

from __future__ import annotations

from fieldagent.agent.channels.line_speed import Probe
from fieldagent.wire import imt, jspr


def _answers_jspr(said: bytes) -> bool:
    lines = jspr.LineReader()
    lines.receive_data(said)
    return lines.next_line() is not None


IMT = Probe(
    "imt",
    (imt.BAUD, 115_200, 460_800, 921_600),
    b"\r" + jspr.get("apiVersion"),
    _answers_jspr,
)
"""Our sources name only one baud rate of a 9704; the others are the usual ones around it."""
