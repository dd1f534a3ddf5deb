"""The kit's settings of the MQTT broker."""

from __future__ import annotations

from pathlib import Path

from fieldagent.agent.settings import parse
from fieldagent.extensions.mqtt.agent.settings import KEYS

GOOD = {
    "mqtt-address": "mqtts://broker.hut.example:8884/",
    "mqtt-user": "kit",
    "mqtt-password": "a word = or two",
    "mqtt-ca-file": "/etc/fieldagent/broker.pem",
    "mqtt-name": "hut_7",
    "mqtt-prefix": "alps/west",
    "mqtt-discovery": "none",
    "mqtt-senders": "home-assistant, node_red",
    "mqtt-credits-per-day": "5",
    "mqtt-commands-per-hour": "10",
    "mqtt-sos": "on",
}


def test_every_key_is_read() -> None:
    assert GOOD.keys() == {key.name for key in KEYS}
    text = "".join(f"{name}={value}\n" for name, value in GOOD.items())
    settings = parse(text, Path("agent.properties")).parts["mqtt"]
    assert (settings.host, settings.port) == ("broker.hut.example", 8884)
    assert settings.secure
    assert settings.sos == "on"
    assert settings.senders == {"home-assistant", "node_red"}
    assert settings.place == ("alps/west", "hut_7", "")
