"""What an IMT modem is asked, so that its answer shows that it is there."""

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
"""No source that we have names another speed of a 9704 than its own: the usual ones around it."""
