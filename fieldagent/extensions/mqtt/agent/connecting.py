"""Connects the kit to its MQTT broker, with the kit's own client id."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio

from fieldagent.agent.channels.connecting import ServerPlace, Unreachable, open_stream
from fieldagent.agent.channels.contract import LinkState
from fieldagent.extensions.mqtt import session
from fieldagent.extensions.mqtt.agent.settings import MqttSettings
from fieldagent.extensions.mqtt.packets import LastWill
from fieldagent.extensions.mqtt.session import BrokerLost, MqttClient, MqttSession


def make_client_id(settings: MqttSettings) -> str:
    """Return the client id of this kit at the broker."""
    return f"fieldagent-{settings.name}"


@asynccontextmanager
async def open_session(
    settings: MqttSettings, will: LastWill | None = None, *, suffix: str = ""
) -> AsyncIterator[MqttSession]:
    """Connect to the broker. `suffix` distinguishes the client id of this session from that of the
    agent. Raises BrokerLost if the broker cannot be reached or refuses the connection.
    """
    client = MqttClient(
        f"{make_client_id(settings)}{suffix}",
        "this kit",
        "mqtt-password",
        settings.user,
        settings.password,
    )
    async with session.open_session(partial(_open, settings), client, will) as connection:
        yield connection


async def _open(settings: MqttSettings) -> trio.abc.Stream:
    place = ServerPlace(
        settings.host, settings.port, settings.secure, "mqtt-ca-file", settings.ca_file
    )
    try:
        return await open_stream(place)
    except Unreachable as error:
        raise BrokerLost(error.reason, fault=error.state is LinkState.FAULT) from error
