"""How `fieldagent check` looks at the GSM modem."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fieldagent.agent.channels.serial_check import check_serial_port
from fieldagent.system.finding import Finding


def sms_finding(port: str, status: Mapping[str, Any] | None) -> Finding:
    """Return how it is, by what the agent that has it tells, or by its port where none runs."""
    told = (status or {}).get("channels", {}).get("Cellular", {}).get("sms")
    if told is None:
        return check_serial_port(Path(port))
    return Finding(str(told).startswith("ready"), f"SMS by {port}: {told}")
