"""Settings and start of the bridge to a team's TAK server."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fieldagent.hub.bridge.contract import BridgeHost, BridgeKind, Own
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import (
    Key,
    WrongProperty,
    make_choices_reader,
    make_integer_reader,
    read_absolute_path,
    read_text,
    split_url,
)

if TYPE_CHECKING:
    from fieldagent.extensions.tak.bridge.inward import TakRules

PORTS = {"tls": 8089, "tcp": 8087}
"""Default ports of TAK Server and ATAK."""
SHAREABLE_KINDS = ("positions", "sos", "messages", "waypoints")


class TakAddress(NamedTuple):
    secure: bool
    host: str
    port: int


def _read_address(value: str) -> TakAddress:
    parts = split_url(value, *PORTS)
    if parts is None or parts.path not in ("", "/") or parts.query or parts.username is not None:
        raise WrongProperty(
            "must be tls:// and a host, or tcp:// without TLS, with an optional port, not"
            f" {value!r}"
        )
    return TakAddress(
        parts.scheme == "tls", urlsplit(value).hostname or "", parts.port or PORTS[parts.scheme]
    )


def _read_callsigns(value: str) -> frozenset[str]:
    callsigns = frozenset(filter(None, (each.strip() for each in re.split(",", value))))
    if not callsigns:
        raise WrongProperty(
            "must be callsigns, separated by commas; to allow none, remove the line"
        )
    return callsigns


KEYS = (
    Key(
        "tak-server",
        _read_address,
        None,
        "a team's TAK server, tls://HOST:8089, or tcp://HOST:8087 in a trusted network: its map"
        " shows the kits, and its people and the kits can write to each other"
        " (docs/how-to/tak.md)",
    ),
    Key("tak-workspace", read_text, None, "number or name of the workspace for the server"),
    Key("tak-certificate", read_absolute_path, None, "PEM file with this hub's client certificate"),
    Key(
        "tak-key",
        read_absolute_path,
        None,
        "PEM file with the key of that certificate, without a password",
    ),
    Key(
        "tak-ca-file",
        read_absolute_path,
        None,
        "PEM file of the server's certificate authority, instead of the system's authorities",
    ),
    Key(
        "tak-server-name",
        read_text,
        None,
        "name in the server's certificate, if it is not HOST",
    ),
    Key(
        "tak-shares",
        make_choices_reader(*SHAREABLE_KINDS),
        ("positions", "sos", "messages"),
        "kinds that everyone at the server sees: some of positions, sos, messages (those to"
        " everyone) and waypoints, which are also accepted from there; or none (positions sos"
        " messages)",
    ),
    Key(
        "tak-people",
        make_integer_reader(1, 200, "people"),
        40,
        "maximum number of users with kits on the server's map; each uses a connection (40)",
    ),
    Key(
        "tak-allow",
        _read_callsigns,
        frozenset[str](),
        "callsigns at the server, separated by commas, that may use paid channels: satellite"
        " and SMS (none)",
    ),
    Key(
        "tak-credits-per-day",
        make_integer_reader(0, 1_000_000, "credits"),
        0,
        "maximum satellite credits, and maximum SMS, per UTC day for all these callsigns (0: none)",
    ),
)
EXAMPLES = {
    "tak-server": "tls://tak.example.org:8089",
    "tak-workspace": "Alps",
    "tak-certificate": "/etc/fieldagent/tak.pem",
    "tak-key": "/etc/fieldagent/tak-key.pem",
    "tak-ca-file": "/etc/fieldagent/tak-ca.pem",
    "tak-server-name": "takserver",
    "tak-allow": "BASE, LEAD 1",
}


def _find_faults(settings: Own) -> list[str]:
    faults = []
    server: TakAddress | None = settings["tak-server"]
    if server is not None and server.secure and settings["tak-certificate"] is None:
        faults.append("tak-server needs tak-certificate: set that too, or remove tak-server")
    works = server is not None or settings.get("tak-listen") is not None
    if server is not None and settings["tak-workspace"] is None:
        faults.append("tak-server needs tak-workspace: set that too, or remove tak-server")
    if settings["tak-workspace"] is not None and not works:
        faults.append(
            "tak-workspace needs tak-server or tak-listen: set one of them too, or remove"
            " tak-workspace"
        )
    if settings["tak-allow"] and not settings["tak-credits-per-day"]:
        faults.append("tak-allow needs tak-credits-per-day: set that too, or remove tak-allow")
    return faults


def _run_bridge(host: BridgeHost) -> Callable[[], Awaitable[None]] | None:
    own = host.own
    address: TakAddress | None = own["tak-server"]
    if address is None or own["tak-workspace"] is None:
        return None
    # Import the bridge only here. Every hub command reads these settings, and most hubs have no TAK
    # server.
    from fieldagent.extensions.tak.bridge import service
    from fieldagent.extensions.tak.bridge.link import TakServer, open_team_server

    server = TakServer(
        address.host,
        address.port,
        address.secure,
        own["tak-certificate"],
        own["tak-key"],
        own["tak-ca-file"],
        own["tak-server-name"],
    )
    return partial(service.run, host, partial(open_team_server, server), read_rules(own))


def read_rules(settings: Own) -> TakRules:
    """Return the bridge's rules from the settings: workspace, shared kinds of items, largest number
    of users, allowed callsigns, and daily credits.
    """
    from fieldagent.extensions.tak.bridge.inward import TakRules

    return TakRules(
        settings["tak-workspace"],
        frozenset(settings["tak-shares"]),
        settings["tak-people"],
        settings["tak-allow"],
        settings["tak-credits-per-day"],
    )


KIND = BridgeKind(
    name="tak",
    title="the TAK server",
    keys=KEYS,
    work=_run_bridge,
    examples=EXAMPLES,
    together=(("tak-certificate", "tak-key"),),
    faults=_find_faults,
)
