"""Recognises a 9704 by its list of JSPR versions. No version is chosen, and no message is
touched.
"""

from __future__ import annotations

from contextlib import suppress

from fieldagent.agent.channels.recognition import (
    DeviceLine,
    DeviceReport,
    Recognition,
    answer_to,
)
from fieldagent.wire import imt, jspr
from fieldagent.wire.errors import RemoteProtocolError

NAME = "imt"
TARGET = "apiVersion"


def _answer(said: bytes) -> jspr.JsprLine | None:
    lines = jspr.LineReader()
    lines.receive_data(said)
    while (line := lines.next_line()) is not None:
        if line.target == TARGET and line.code == jspr.DONE:
            return line
    return None


async def tell(line: DeviceLine) -> DeviceReport:
    """Query the JSPR versions of the modem, and report the newest. Raises PortLost."""
    answer = await answer_to(line, jspr.get(TARGET), _answer)
    newest = ""
    if answer is not None:
        with suppress(RemoteProtocolError):
            newest = ".".join(map(str, imt.newest_version(answer).values()))
    spoken = f", JSPR {newest}" if newest else ""
    what = f"satellite modem of IMT, such as a 9704{spoken}"
    return DeviceReport(what, facts={"jspr": newest or None})


RECOGNITION = Recognition(
    NAME, 8, imt.BAUD, lambda: jspr.get(TARGET), lambda said: _answer(said) is not None, tell
)
