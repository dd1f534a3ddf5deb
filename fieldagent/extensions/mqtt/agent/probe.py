"""Checks the broker for `fieldagent check`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fieldagent.agent.channels.contract import LinkState
from fieldagent.extensions.mqtt.agent.connecting import open_session
from fieldagent.extensions.mqtt.agent.settings import MqttSettings
from fieldagent.extensions.mqtt.session import BrokerLost
from fieldagent.system.finding import Finding
from fieldagent.system.signals import run_breakable


async def probe(settings: MqttSettings) -> str:
    """Return the reason why the broker does not accept this kit, or an empty text if the broker
    accepts it. The probe uses another client id than the agent, so the agent's session continues.
    The broker stores no state for this id.
    """
    try:
        async with open_session(settings, suffix=f"-{secrets.token_hex(3)}") as session:
            await session.leave()
    except BrokerLost as lost:
        return lost.reason
    return ""


def check(settings: MqttSettings, status: Mapping[str, Any] | None, folder: Path) -> list[Finding]:
    """Connect to the broker once with another client id than the agent, so that the agent's session
    continues. `status` is the broker's member of `GET /api/status`, or None if no agent is running.
    """
    if failure := run_breakable(probe, settings):
        return [Finding(False, f"MQTT: {failure}")]
    if status and status["reason"] and status["state"] != LinkState.NO_SERVICE.value:
        return [Finding(False, f"MQTT: {status['reason']}")]
    text = f"the broker at {settings.address} accepts this kit"
    if not settings.secure:
        text += (
            "; others on the network can read everything, also the password: use mqtts:// for TLS"
        )
    return [Finding(True, text)]
