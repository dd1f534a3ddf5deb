"""Recognises a Short Burst Data modem by its model. No session is started."""

from __future__ import annotations

from fieldagent.agent.channels.recognition import (
    DeviceLine,
    DeviceReport,
    Recognition,
    answer_to,
)
from fieldagent.wire import model

NAME = "sbd"
BAUD = 19_200


def _is_answer(data: bytes) -> bool:
    return model.IRIDIUM in (model.find_model_name(data) or "").upper()


async def read_report(line: DeviceLine) -> DeviceReport:
    """Query the model of the modem at `line`, and return a report."""
    name = await answer_to(line, model.QUESTION, model.find_model_name) or "of unknown model"
    return DeviceReport(f"satellite modem, {name}", facts={"model": name})


RECOGNITION = Recognition(NAME, 7, BAUD, lambda: model.QUESTION, _is_answer, read_report)
