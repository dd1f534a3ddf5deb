"""Settings of the kit's MQTT broker."""

from __future__ import annotations

from pathlib import Path

from fieldagent.agent.kit_part import SECRET, KitPart
from fieldagent.extensions.mqtt.shared_settings import (
    CA_FILE,
    DISCOVERY,
    PREFIX,
    find_host,
    find_port,
    is_secure,
    read_broker_address,
    read_one_level,
    read_senders,
)
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import Key, make_choice_reader, make_integer_reader, read_text


class MqttSettings(NamedTuple):
    """Settings in the order of `KEYS`."""

    address: str | None = None
    user: str | None = None
    password: str | None = None
    ca_file: Path | None = None
    name: str = "kit"
    prefix: str = "fieldagent"
    discovery: str = "homeassistant"
    """Prefix of Home Assistant's discovery topics; empty if discovery is off."""
    senders: frozenset[str] = frozenset()
    credits_per_day: int = 0
    commands_per_hour: int = 60
    sos: str = "off"

    @property
    def place(self) -> tuple[str, str, str]:
        """Return the arguments of `make_topics`: the prefix, the name and the discovery prefix."""
        return self.prefix, self.name, self.discovery

    @property
    def host(self) -> str:
        """Return the host of the broker, or an empty text if no broker is set."""
        return find_host(self.address or "")

    @property
    def port(self) -> int:
        """Return the TCP port of the broker."""
        return find_port(self.address or "")

    @property
    def secure(self) -> bool:
        """Return True if the connection uses TLS."""
        return is_secure(self.address or "")


KEYS = (
    Key(
        "mqtt-address",
        read_broker_address,
        None,
        "MQTT broker that gets messages and state from this kit, and over which "
        "other programs send through this kit, such as mqtt://127.0.0.1 or "
        "mqtts://host:8883 (docs/how-to/mqtt.md)",
    ),
    Key("mqtt-user", read_text, None, "user name of this kit at the broker"),
    Key("mqtt-password", read_text, None, "password of this kit at the broker"),
    CA_FILE,
    Key(
        "mqtt-name", read_one_level, "kit", "name of this kit in topics, unique at the broker (kit)"
    ),
    PREFIX,
    DISCOVERY,
    Key(
        "mqtt-senders",
        read_senders,
        frozenset[str](),
        "senders that may use paid channels and name people, and raise an SOS if "
        "mqtt-sos is on. A sender is the name after send/ in the topic, which the "
        "broker's access rules must protect (none)",
    ),
    Key(
        "mqtt-credits-per-day",
        make_integer_reader(0, 1_000_000, "credits"),
        0,
        "maximum satellite credits, and maximum SMS, per UTC day for all these senders, without SOS"
        " (0: none)",
    ),
    Key(
        "mqtt-commands-per-hour",
        make_integer_reader(1, 100_000, "commands"),
        60,
        "maximum commands per hour; more are dropped and counted (60)",
    ),
    Key(
        "mqtt-sos",
        make_choice_reader("off", "on"),
        "off",
        "on: mqtt-senders may raise an SOS. A faulty automation can do so too (off)",
    ),
)
EXAMPLES = {
    "mqtt-address": "mqtt://127.0.0.1",
    "mqtt-user": "fieldagent",
    "mqtt-ca-file": "/etc/fieldagent/broker-ca.pem",
    "mqtt-senders": "home-assistant",
}
NEEDS = {
    **{key.name: "mqtt-address" for key in KEYS[1:] if key.default is None},
    "mqtt-password": "mqtt-user",
}
PART = KitPart(
    name="mqtt",
    title="MQTT",
    keys=KEYS,
    own=MqttSettings,
    is_on=lambda own: own.address is not None,
    takes_inbound=True,
    plan="fieldagent.extensions.mqtt.agent.service:plan",
    check="fieldagent.extensions.mqtt.agent.probe:check",
    metrics="fieldagent.extensions.mqtt.agent.metrics:list_families",
    examples=EXAMPLES,
    needs=NEEDS,
    not_from_afar={
        "mqtt-address": "all received items would go there, and sent items would come from there",
        "mqtt-ca-file": "it decides which broker the kit trusts",
        "mqtt-password": SECRET,
    },
)
