"""Checks the GSM modem for `fieldagent check`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fieldagent.agent.sms.ways import way_of
from fieldagent.system.finding import Finding


def sms_finding(port: str, status: Mapping[str, Any] | None) -> Finding:
    """Return a finding from the running agent's status, or from the port if no agent is running."""
    state = (status or {}).get("channels", {}).get("Cellular", {}).get("sms")
    if state is None:
        return way_of(port).check(port)
    return Finding(str(state).startswith("ready"), f"SMS by {port}: {state}")
