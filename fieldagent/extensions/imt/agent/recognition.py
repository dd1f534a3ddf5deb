"""Finds a 9704 at a port. `PROBE` accepts any answer. `RECOGNITION` accepts the list of JSPR
versions. Neither selects a version or affects messages.
"""

from __future__ import annotations

from contextlib import suppress

from fieldagent.agent.channels.line_speed import Probe
from fieldagent.agent.channels.recognition import (
    DeviceLine,
    DeviceReport,
    Recognition,
    answer_to,
)
from fieldagent.extensions.imt import jspr, messages
from fieldagent.wire.errors import RemoteProtocolError

NAME = "imt"
TARGET = "apiVersion"


def _can_answer_jspr(reply: bytes) -> bool:
    lines = jspr.LineReader()
    lines.receive_data(reply)
    return lines.read_next_line() is not None


PROBE = Probe(
    NAME,
    (messages.BAUD, 115_200, 460_800, 921_600),
    b"\r" + jspr.encode_get(TARGET),
    _can_answer_jspr,
)
"""Probe of a port. The documentation mentions only one baud rate of a 9704. The other rates are
common rates near it."""


def _request_answer(reply: bytes) -> jspr.JsprLine | None:
    lines = jspr.LineReader()
    lines.receive_data(reply)
    while (line := lines.read_next_line()) is not None:
        if line.target == TARGET and line.code == jspr.DONE:
            return line
    return None


async def read_report(line: DeviceLine) -> DeviceReport:
    """Query the modem's JSPR versions and return a report with the newest. Raises PortLost."""
    answer = await answer_to(line, jspr.encode_get(TARGET), _request_answer)
    newest = ""
    if answer is not None:
        with suppress(RemoteProtocolError):
            newest = ".".join(map(str, messages.find_newest_version(answer).values()))
    spoken = f", JSPR {newest}" if newest else ""
    device_kind = f"satellite modem of IMT, such as a 9704{spoken}"
    return DeviceReport(device_kind, facts={"jspr": newest or None})


RECOGNITION = Recognition(
    NAME,
    8,
    messages.BAUD,
    lambda: jspr.encode_get(TARGET),
    lambda said: _request_answer(said) is not None,
    read_report,
)
