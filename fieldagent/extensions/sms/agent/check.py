"""Checks the GSM modem for `fieldagent check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fieldagent.extensions.sms.agent.modem_kinds import find_modem_kind
from fieldagent.extensions.sms.agent.settings import SmsSettings
from fieldagent.system.finding import Finding


def check(
    settings: SmsSettings, cellular: Mapping[str, Any] | None, folder: Path
) -> Iterator[Finding]:
    """Yield findings from the running agent's status. If no agent is running, yield findings from
    the port.
    """
    port, state = settings.port, (cellular or {}).get("sms")
    assert port is not None
    if state is None:
        yield find_modem_kind(port).check(port)
    else:
        yield Finding(str(state).startswith("ready"), f"SMS by {port}: {state}")
