"""Recognises a GSM modem and queries the state of its SIM. The recognition sends no SMS and tries
no PIN.
"""

from __future__ import annotations

import re

from fieldagent.agent.channels.recognition import (
    DeviceLine,
    DeviceReport,
    Recognition,
    answer_to,
)
from fieldagent.extensions.sms import sms_modem
from fieldagent.wire import model

NAME = "gsm"
BAUD = 115_200
SIM_MAX_S = 5.0
"""Seconds within which a modem must report the state of its SIM."""
_SIM = re.compile(rb"\+CPIN: ?([^\r\n]+)|\+CME ERROR: ?([^\r\n]+)|[\r\n](ERROR)[\r\n]")


def _is_answer(reply: bytes) -> bool:
    name = model.find_model_name(reply)
    return name is not None and model.IRIDIUM not in name.upper()


def _read_sim(reply: bytes) -> str | None:
    match = _SIM.search(reply)
    return None if match is None else match[match.lastindex or 0].decode("ascii", "replace")


async def read_report(line: DeviceLine) -> DeviceReport:
    """Query a modem's model and the state of its SIM. Raises PortLost."""
    name = await answer_to(line, model.QUESTION, model.find_model_name) or "of unknown model"
    sim = await answer_to(line, f"{sms_modem.PIN}\r".encode(), _read_sim, SIM_MAX_S)
    return DeviceReport(
        f"GSM modem, {name}", trouble=_find_trouble(sim), facts={"model": name, "sim": sim}
    )


def _find_trouble(sim: str | None) -> tuple[str, ...]:
    if sim in (None, "READY"):
        return ()
    if sim == "SIM PIN":
        return ("its SIM needs a PIN: set sms-pin, or turn the PIN off in a telephone",)
    if sim == "SIM PUK":
        return ("its SIM is locked: enter its PUK in a telephone",)
    return (f"its SIM cannot be used ({sim}): is a SIM inserted, and the right way round?",)


def list_devices() -> list[Recognition]:
    """Return the recognition of a GSM modem at a serial port."""
    return [Recognition(NAME, 6, BAUD, lambda: model.QUESTION, _is_answer, read_report)]
