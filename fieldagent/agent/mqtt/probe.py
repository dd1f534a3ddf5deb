"""How `fieldagent check` looks at the broker."""

from __future__ import annotations

import secrets

from fieldagent.agent.mqtt.connecting import connected
from fieldagent.agent.mqtt_settings import MqttSettings
from fieldagent.mqtt.session import BrokerLost


async def probe(settings: MqttSettings) -> str:
    """Return why the broker does not take this kit; empty where it does. The agent's session goes
    on: it is another's, that a broker does not keep."""
    try:
        async with connected(settings, suffix=f"-{secrets.token_hex(3)}") as session:
            await session.leave()
    except BrokerLost as lost:
        return lost.reason
    return ""
