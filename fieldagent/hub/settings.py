"""The hub's settings file, `hub.properties`: Java properties, read once at the start."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from fieldagent.http.address import LOOPBACK_NETWORKS, Network, is_in
from fieldagent.hub.store.contract import DatabaseOptions
from fieldagent.system.directories import state_directory, xdg_directory
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.properties import (
    InvalidSettings,
    Key,
    WrongProperty,
    absolute_path,
    endpoint,
    networks,
    one_of,
    read,
    read_file,
    text,
    url,
    whole,
)

PORT = 9443


_TILES = re.compile(r"https?://[\w.:\[\]-]+/[!-~]*", re.ASCII)


def tile_address(value: str) -> str:
    bare = value
    for place in ("{z}", "{x}", "{y}"):
        bare = bare.replace(place, "", 1) if place in value else ""
    sound = _TILES.fullmatch(bare) and not set(bare) & set("{}<>\"'\\")
    if not sound or "{" in urlsplit(value).netloc:
        raise WrongProperty(
            "must be a URL with {z}, {x} and {y} once each in its path, such as"
            f" https://tiles.example.org/{{z}}/{{x}}/{{y}}.png, not {value!r}"
        )
    return value


@dataclass(frozen=True, slots=True)
class HubSettings:
    database: str
    database_password_file: Path | None
    database_pooler: str
    database_direct: str | None
    listen: tuple[str, ...]
    port: int
    tls_certificate: Path | None
    tls_key: Path | None
    socket_listen: Path | None
    proxy_listen: tuple[str, int] | None
    admin_listen: tuple[str, int] | None
    trusted_proxies: tuple[Network, ...]
    access_log: str
    map_file: Path | None
    map_tiles: str | None
    map_attribution: str | None
    satellite_grace: int
    item_time_to_live: int
    keep_days: int
    keep_audit_days: int
    drain_seconds: int
    directip_listen: tuple[str, int] | None
    directip_allow: tuple[Network, ...]
    directip_gateway: tuple[str, int] | None
    rockblock_address: str
    rockblock_username: str | None
    rockblock_password: str | None
    rockblock_public_key: Path | None
    webhook_allow: tuple[Network, ...]
    sos_confirmed_by: str | None


def _addresses(value: str) -> tuple[str, ...]:
    for each in value.split():
        try:
            ipaddress.ip_address(each)
        except ValueError:
            text = f"must be IP addresses with spaces between, not {each!r}; `port` is the port"
            raise WrongProperty(text) from None
    return tuple(value.split())


KEYS = (
    Key(
        "database",
        text,
        None,
        "postgresql://… or an SQLite file (~/.local/state/fieldagent/hub.sqlite3)",
    ),
    Key(
        "database-password-file",
        absolute_path,
        None,
        "file whose first line is PostgreSQL's password, instead of one in the address",
    ),
    Key(
        "database-pooler",
        one_of("none", "transaction"),
        "none",
        "transaction: the address leads to PgBouncer with pool_mode=transaction (none)",
    ),
    Key(
        "database-direct",
        text,
        None,
        "postgresql://… around the pooler, to hear of news at once; without it in up to 3 s",
    ),
    Key("listen", _addresses, ("127.0.0.1", "::1"), "addresses to listen on (127.0.0.1 ::1)"),
    Key("port", whole(0, 65535, "port; 0 for any"), PORT, f"port of the hub ({PORT})"),
    Key("tls-certificate", absolute_path, None, "PEM file with the certificate chain"),
    Key("tls-key", absolute_path, None, "PEM file with its key"),
    Key(
        "socket-listen",
        absolute_path,
        None,
        "Unix socket for a proxy on this machine: plain HTTP, and its X-Forwarded-For is believed",
    ),
    Key(
        "proxy-listen",
        endpoint,
        None,
        "HOST:PORT for trusted-proxies that speak the PROXY protocol, version 2",
    ),
    Key(
        "admin-listen",
        endpoint,
        None,
        "HOST:PORT of a listener for /metrics, /healthz and /livez; /metrics is there alone then",
    ),
    Key(
        "trusted-proxies",
        networks,
        (),
        "networks whose X-Forwarded-For is believed, such as 127.0.0.1/32",
    ),
    Key(
        "access-log",
        one_of("log", "json", "none"),
        "log",
        "a line for each push, link, post to a webhook and refusal: log, json (an object a line on"
        " standard output) or none (log)",
    ),
    Key(
        "map-file",
        absolute_path,
        None,
        "an MBTiles file with raster tiles (PNG, JPEG, WebP) that the console draws its map with; a"
        " grid otherwise",
    ),
    Key(
        "map-tiles",
        tile_address,
        None,
        "in its place the address of a server of tiles, which the console's browsers then ask, and"
        " which so learns where you look: https://tiles.example.org/{z}/{x}/{y}.png",
    ),
    Key("map-attribution", text, None, "whose that map is, as its licence wants it told"),
    Key(
        "satellite-grace",
        whole(0, 86_400, "seconds"),
        60,
        "seconds the IP link has before a satellite message is paid for (60)",
    ),
    Key(
        "item-time-to-live",
        whole(1, 2**31 - 1, "seconds"),
        604_800,
        "seconds after which an item that could not leave expires (604800)",
    ),
    Key("keep-days", whole(1, 36_500, "days"), 30, "days that ended items are kept (30)"),
    Key(
        "keep-audit-days",
        whole(1, 36_500, "days"),
        400,
        "days that the lines of `fieldagent hub audit` are kept (400)",
    ),
    Key(
        "drain-seconds",
        whole(0, 60, "seconds"),
        0,
        "seconds from SIGTERM, when /healthz turns to 503, until links and listeners close (0)",
    ),
    Key("directip-listen", endpoint, None, "HOST:PORT where the operator's gateway brings MO"),
    Key(
        "directip-allow",
        networks,
        (),
        "networks that it may come from, as the operator names them: 192.0.2.0/28 (this machine)",
    ),
    Key("directip-gateway", endpoint, None, "HOST:PORT of the operator's gateway, for MT"),
    Key(
        "rockblock-address",
        url,
        "https://rockblock.rock7.com/rockblock/MT",
        "URL of the RockBLOCK MT service",
    ),
    Key("rockblock-username", text, None, "account at RockBLOCK"),
    Key("rockblock-password", text, None, "its password"),
    Key(
        "rockblock-public-key",
        absolute_path,
        None,
        "PEM file with RockBLOCK's public key, which checks the JWT of what it brings",
    ),
    Key(
        "webhook-allow",
        networks,
        (),
        "private networks that webhooks may be in: 10.1.0.0/16 (none)",
    ),
    Key(
        "sos-confirmed-by",
        one_of("person", "webhook"),
        None,
        "whose answer ends an SOS's repeats: person or webhook; a person, where somebody is a"
        " dispatcher",
    ),
)

EXAMPLES = {
    "map-file": "/var/lib/fieldagent-hub/alps.mbtiles",
    "map-tiles": "https://tiles.example.org/{z}/{x}/{y}.png",
    "map-attribution": "© the mapmakers",
    "database": "postgresql://fieldagent@db.example.org/fieldagent",
    "database-password-file": "/etc/fieldagent/database-password",
    "database-direct": "postgresql://fieldagent@db.example.org:5432/fieldagent",
    "tls-certificate": "/etc/fieldagent/chain.pem",
    "tls-key": "/etc/fieldagent/key.pem",
    "socket-listen": "/run/fieldagent-hub/http.sock",
    "proxy-listen": "127.0.0.1:9445",
    "admin-listen": "127.0.0.1:9444",
    "trusted-proxies": "127.0.0.1/32 ::1/128",
    "directip-listen": "127.0.0.1:10800",
    "directip-allow": "192.0.2.0/28",
    "directip-gateway": "gateway.example.org:10800",
    "rockblock-username": "me@example.org",
    "rockblock-public-key": "/etc/fieldagent/rockblock.pem",
    "webhook-allow": "10.1.0.0/16",
    "sos-confirmed-by": "person",
}
"""Of keys without a default, for the first settings file. None of a secret: some would keep it."""

_TOGETHER = (
    ("tls-certificate", "tls-key"),
    ("rockblock-username", "rockblock-password"),
)


def is_behind_tls(settings: HubSettings) -> bool:
    """Whether browsers reach it by TLS: its own, or a proxy's."""
    own = settings.tls_certificate is not None
    return own or bool(settings.trusted_proxies) or settings.socket_listen is not None


def database_options(settings: HubSettings, *, upgrade: bool = False) -> DatabaseOptions:
    return DatabaseOptions(
        upgrade=upgrade,
        password_file=settings.database_password_file,
        pooled=settings.database_pooler == "transaction",
        direct=settings.database_direct,
    )


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """`$XDG_CONFIG_HOME/fieldagent/hub.properties`."""
    return xdg_directory(environ, "XDG_CONFIG_HOME", ".config") / "hub.properties"


def load(
    path: Path | None, database: str | None = None, environ: Mapping[str, str] = os.environ
) -> HubSettings:
    """Read the file at `path`; None is the default one, which may be missing. `database` goes
    before what the file says.

    Raises InvalidSettings with every fault, or OSError.
    """
    given = path or default_path(environ)
    return parse(read_file(given, required=path is not None), given, database, environ)


def parse(
    content: str,
    path: Path,
    database: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> HubSettings:
    values, pairs, faults = read(content, path, KEYS)
    for one, other in _TOGETHER:
        for name, missing in ((one, other), (other, one)):
            if name in pairs and missing not in pairs:
                faults.append(f"{name} needs {missing}: set that too, or remove {name}")
    beyond = [a for a in values["listen"] if not ipaddress.ip_address(a).is_loopback]
    if beyond and "tls-certificate" not in pairs and not values["trusted_proxies"]:
        faults.append(
            f"listen is {' '.join(beyond)} without TLS: set tls-certificate and tls-key, or"
            " trusted-proxies when a proxy does TLS"
        )
    if "proxy-listen" in pairs and not values["trusted_proxies"]:
        faults.append("proxy-listen needs trusted-proxies: set that too, or remove proxy-listen")
    if values["directip_listen"] is not None and "directip-allow" not in pairs:
        host, _ = values["directip_listen"]
        if not is_in(host, LOOPBACK_NETWORKS):
            faults.append(
                f"directip-listen is {host}, where anybody may bring MO messages in any device's"
                " name: set directip-allow to the addresses of the operator's gateways"
            )
    if values["map_file"] and values["map_tiles"]:
        faults.append("map-file and map-tiles: set the one or the other")
    if faults:
        raise InvalidSettings(path, faults)
    if database or not values["database"]:
        values["database"] = database or str(state_directory(environ) / "hub.sqlite3")
    return HubSettings(**values)
