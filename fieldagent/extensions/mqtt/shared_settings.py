"""Settings that the agent and the hub share: the broker's address and the levels of topics."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from fieldagent.system.properties import Key, WrongProperty, read_absolute_path, split_url

PORTS = {"mqtt": 1883, "mqtts": 8883}
"""Default ports by scheme, as registered with IANA."""


def read_broker_address(value: str) -> str:
    """Return the address without a slash at the end. Raises WrongProperty for any other value."""
    parts = split_url(value, *PORTS)
    if parts is None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise WrongProperty(
            "must be mqtts:// and a host, or mqtt:// without TLS, with an optional port, not"
            f" {value!r}"
        )
    if parts.username is not None:
        raise WrongProperty("must not contain a user: use the settings for user and password")
    return value.rstrip("/")


def find_host(address: str) -> str:
    """Return the broker's host, without the brackets of an IPv6 address."""
    return urlsplit(address).hostname or ""


def find_port(address: str) -> int:
    """Return the broker's port. If the address has no port, return the default port of its
    scheme.
    """
    url = urlsplit(address)
    return url.port or PORTS[url.scheme]


def is_secure(address: str) -> bool:
    """Return True if the connection to the broker uses TLS."""
    return address.startswith("mqtts:")


def read_one_level(value: str) -> str:
    """Return one level of a topic. Raises WrongProperty for any other value."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", value):
        raise WrongProperty(f"must be 1 to 40 letters, digits, - and _, not {value!r}")
    return value


def read_levels(value: str) -> str:
    """Return levels of a topic, which are separated by /. Raises WrongProperty for any other
    value.
    """
    if len(value) > 200 or not re.fullmatch(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*", value):
        raise WrongProperty(f"must be letters, digits, - and _, with / between, not {value!r}")
    return value


def read_discovery_prefix(value: str) -> str:
    """Return the discovery prefix, or an empty text for `none`. Raises WrongProperty for any other
    value.
    """
    return "" if value == "none" else read_levels(value)


def read_senders(value: str) -> frozenset[str]:
    """Return the names of senders, which are separated by commas or spaces. Raises WrongProperty
    for any other value.
    """
    return frozenset(read_one_level(each) for each in value.replace(",", " ").split())


CA_FILE = Key(
    "mqtt-ca-file",
    read_absolute_path,
    None,
    "PEM file of a private broker's certificate authority, instead of the system's authorities",
)
PREFIX = Key("mqtt-prefix", read_levels, "fieldagent", "first levels of the topics (fieldagent)")
DISCOVERY = Key(
    "mqtt-discovery",
    read_discovery_prefix,
    "homeassistant",
    "prefix under which Home Assistant looks for devices; none: nothing is announced"
    " (homeassistant)",
)
"""Settings that have the same meaning in both programs. All other settings differ."""
