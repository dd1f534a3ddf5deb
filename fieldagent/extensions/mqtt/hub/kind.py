"""Settings and start of the hub's bridge to an MQTT broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

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
from fieldagent.hub.bridge.contract import BridgeHost, BridgeKind, Own
from fieldagent.system.properties import (
    Key,
    make_choice_reader,
    make_choices_reader,
    make_integer_reader,
    read_absolute_path,
    read_text,
)

SHAREABLE_KINDS = ("positions", "incidents", "messages", "waypoints", "data", "private")


KEYS = (
    Key(
        "mqtt-address",
        read_broker_address,
        None,
        "MQTT broker that gets messages and state of the kits, and over which "
        "other programs send to the kits, such as mqtts://host:8883, or "
        "mqtt://127.0.0.1 without TLS (docs/how-to/mqtt.md)",
    ),
    Key("mqtt-workspace", read_text, None, "number or name of the workspace for the broker"),
    Key("mqtt-user", read_text, None, "user name of this hub at the broker"),
    Key(
        "mqtt-password-file",
        read_absolute_path,
        None,
        "file with the password at the broker in its first line",
    ),
    CA_FILE,
    Key(
        "mqtt-name", read_one_level, "hub", "name of this hub in topics, unique at the broker (hub)"
    ),
    PREFIX,
    DISCOVERY,
    Key(
        "mqtt-shares",
        make_choices_reader(*SHAREABLE_KINDS),
        ("positions", "incidents", "messages", "waypoints", "data"),
        "published kinds: some of positions, incidents, messages, waypoints, data, and private"
        " (also those for one person or a group); or none (positions incidents messages"
        " waypoints data)",
    ),
    Key(
        "mqtt-senders",
        read_senders,
        frozenset[str](),
        "senders that may use satellite and SMS. A sender is the name after send/ "
        "in the topic, which the broker's access rules must protect (none)",
    ),
    Key(
        "mqtt-credits-per-day",
        make_integer_reader(0, 1_000_000, "credits"),
        0,
        "maximum satellite credits, and maximum SMS, per UTC day for all these senders (0: none)",
    ),
    Key(
        "mqtt-commands-per-hour",
        make_integer_reader(1, 100_000, "commands"),
        600,
        "maximum commands per hour; more are dropped and counted (600)",
    ),
    Key(
        "mqtt-acknowledge",
        make_choice_reader("off", "on"),
        "off",
        "on: mqtt-senders can acknowledge an SOS, which stops its alarm. A faulty automation"
        " can do so too (off)",
    ),
)
EXAMPLES = {
    "mqtt-address": "mqtts://broker.example.org:8883",
    "mqtt-workspace": "Alps",
    "mqtt-user": "fieldagent",
    "mqtt-password-file": "/etc/fieldagent/mqtt-password",
    "mqtt-ca-file": "/etc/fieldagent/broker-ca.pem",
    "mqtt-senders": "home-assistant",
}


def _find_faults(settings: Own) -> list[str]:
    faults = []
    if settings["mqtt-address"] is None:
        faults += [
            _find_missing_setting(name, "mqtt-address")
            for name in ("mqtt-workspace", "mqtt-user", "mqtt-ca-file")
            if settings[name] is not None
        ]
    elif settings["mqtt-workspace"] is None:
        faults.append(_find_missing_setting("mqtt-address", "mqtt-workspace"))
    if settings["mqtt-password-file"] is not None and settings["mqtt-user"] is None:
        faults.append(_find_missing_setting("mqtt-password-file", "mqtt-user"))
    if settings["mqtt-credits-per-day"] and not settings["mqtt-senders"]:
        faults.append(_find_missing_setting("mqtt-credits-per-day", "mqtt-senders"))
    if settings["mqtt-acknowledge"] == "on" and not settings["mqtt-senders"]:
        faults.append(_find_missing_setting("mqtt-acknowledge", "mqtt-senders"))
    return faults


def _find_missing_setting(name: str, other: str) -> str:
    return f"{name} needs {other}: set that too, or remove {name}"


def _run_bridge(host: BridgeHost) -> Callable[[], Awaitable[None]] | None:
    own = host.own
    address: str | None = own["mqtt-address"]
    if address is None or own["mqtt-workspace"] is None:
        return None
    # Import the bridge only here. Every hub command reads these settings, and most hubs have no
    # broker.
    from fieldagent.extensions.mqtt.hub import service
    from fieldagent.extensions.mqtt.hub.inward import HubMqttRules

    broker = service.HubBroker(
        find_host(address),
        find_port(address),
        is_secure(address),
        own["mqtt-name"],
        own["mqtt-prefix"],
        own["mqtt-discovery"],
        own["mqtt-commands-per-hour"],
        own["mqtt-user"],
        own["mqtt-password-file"],
        own["mqtt-ca-file"],
    )
    rules = HubMqttRules(
        own["mqtt-workspace"],
        frozenset(own["mqtt-shares"]),
        own["mqtt-senders"],
        own["mqtt-credits-per-day"],
        own["mqtt-acknowledge"] == "on",
    )
    return partial(service.run, host, broker, rules)


KIND = BridgeKind(
    name="mqtt",
    title="the MQTT broker",
    keys=KEYS,
    work=_run_bridge,
    examples=EXAMPLES,
    faults=_find_faults,
)
