"""The kit's settings of the MQTT broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldagent.agent.settings import parse
from fieldagent.extensions.mqtt.agent.settings import KEYS
from fieldagent.system.properties import InvalidSettings

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


def test_every_mqtt_setting_is_read() -> None:
    assert GOOD.keys() == {key.name for key in KEYS}
    text = "".join(f"{name}={value}\n" for name, value in GOOD.items())
    settings = parse(text, Path("agent.properties")).parts["mqtt"]
    assert (settings.host, settings.port) == ("broker.hut.example", 8884)
    assert settings.secure
    assert settings.sos == "on"
    assert settings.senders == {"home-assistant", "node_red"}
    assert settings.place == ("alps/west", "hut_7", "")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("mqtt-address=http://broker", "must be mqtts:// and a host"),
        ("mqtt-address=mqtt://a/b", "must be mqtts:// and a host"),
        ("mqtt-address=mqtt://a:b", "is not a URL"),
        ("mqtt-address=mqtt://me:word@a", "use the settings for user and password"),
        ("mqtt-user=me", "mqtt-user needs mqtt-address"),
        ("mqtt-address=mqtt://a\nmqtt-password=x", "mqtt-password needs mqtt-user"),
        ("mqtt-address=mqtt://a\nmqtt-name=a/b", "1 to 40 letters, digits"),
        ("mqtt-address=mqtt://a\nmqtt-prefix=/a", "with / between"),
        ("mqtt-address=mqtt://a\nmqtt-senders=a #", "1 to 40 letters, digits"),
        ("mqtt-address=mqtt://a\nmqtt-sos=yes", "must be off or on"),
    ],
)
def test_invalid_mqtt_setting_is_reported_with_key_and_remedy(line: str, fault: str) -> None:
    with pytest.raises(InvalidSettings, match=fault):
        parse(line, Path("agent.properties"))
