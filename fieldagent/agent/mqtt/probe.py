"""How `fieldagent check` looks at the broker."""

from __future__ import annotations

import secrets

from fieldagent.agent.channels.connecting import Unreachable
from fieldagent.agent.mqtt.session import client_of, connected
from fieldagent.agent.mqtt_settings import MqttSettings


async def probe(settings: MqttSettings) -> str:
    """Return why the broker does not take this kit; empty where it does. The agent's session goes
    on: it is another's, that a broker does not keep."""
    client = f"{client_of(settings)}-{secrets.token_hex(3)}"
    try:
        async with connected(settings, client=client) as session:
            await session.leave()
    except Unreachable as unreachable:
        return unreachable.reason
    return ""
