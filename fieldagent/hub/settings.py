"""Settings file of the hub, `hub.properties`, in the format of Java properties. The hub reads the
file once, when it starts.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from fieldagent.extensions import add_extensions, find_absent_extension
from fieldagent.http.address import Network
from fieldagent.hub.bridge.contract import BridgeKind
from fieldagent.hub.bridge.registry import get_bridges
from fieldagent.hub.contact.contract import ContactKind
from fieldagent.hub.contact.registry import get_contact_kinds
from fieldagent.hub.operator.contract import OperatorKind
from fieldagent.hub.operator.registry import get_operators
from fieldagent.hub.store.contract import DatabaseOptions
from fieldagent.system.directories import find_state_directory, find_xdg_directory
from fieldagent.system.java_properties import NoProperties
from fieldagent.system.java_properties import read_pairs as pairs_in
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.price import Price, read_credit_price
from fieldagent.system.properties import (
    InvalidSettings,
    Key,
    WrongProperty,
    add_environment,
    make_choice_reader,
    make_integer_reader,
    read,
    read_absolute_path,
    read_endpoint,
    read_file,
    read_networks,
    read_text,
)

T = TypeVar("T")

PORT = 9443


_TILES = re.compile(r"https?://[\w.:\[\]-]+/[!-~]*", re.ASCII)


def check_tile_address(value: str) -> str:
    """Check and return the URL of a map's tiles. Its path must contain {z}, {x} and {y} once each.
    Raises WrongProperty for any other value.
    """
    remainder = value
    for placeholder in ("{z}", "{x}", "{y}"):
        remainder = remainder.replace(placeholder, "", 1) if placeholder in value else ""
    sound = _TILES.fullmatch(remainder) and not set(remainder) & set("{}<>\"'\\")
    if not sound or "{" in urlsplit(value).netloc:
        raise WrongProperty(
            "must be a URL with {z}, {x} and {y} once each in its path, such as"
            f" https://tiles.example.org/{{z}}/{{x}}/{{y}}.png, not {value!r}"
        )
    return value


def read_tls_address(value: str) -> str:
    """Check and return an https URL with a host name. Browsers support passkeys only at such URLs.
    Raises WrongProperty for any other value.
    """
    parts = urlsplit(value)
    try:
        ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        is_name = bool(parts.hostname)
    else:
        is_name = False
    base_address = f"https://{parts.netloc}"
    if not is_name or "@" in value or value.rstrip("/") != base_address:
        raise WrongProperty(f"must be https:// and a name, not {value!r}")
    return base_address


def read_items_route(value: str) -> str:
    """Return "off", "on", or the URL to which synthetic items are pushed. Raises WrongProperty for
    any other value.
    """
    if value in ("off", "on"):
        return value
    try:
        return read_tls_address(value)
    except WrongProperty:
        raise WrongProperty(f"must be off, on, or https:// and a name, not {value!r}") from None


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
    console_address: str | None
    socket_listen: Path | None
    proxy_listen: tuple[str, int] | None
    admin_listen: tuple[str, int] | None
    trusted_proxies: tuple[Network, ...]
    access_log: str
    map_file: Path | None
    map_tiles: str | None
    map_attribution: str | None
    satellite_grace: int
    satellite_credit_price: Price | None
    operator_prices: Mapping[str, Price]
    """Price per credit of each operator that has its own price."""
    item_time_to_live: int
    keep_days: int
    keep_audit_days: int
    drain_seconds: int
    synthetic_item: str
    extensions: tuple[str, ...]
    """Locations of third-party extensions."""
    operators: tuple[str, ...]
    """Locations of third-party operators."""
    operator_own: Mapping[str, Any]
    """Settings of each operator, by the name of the operator."""
    webhook_allow: tuple[Network, ...]
    contacts: tuple[str, ...]
    """Locations of third-party kinds of contact."""
    kit_sms_per_day: int
    contact_own: Mapping[str, Any]
    """Settings of each kind of contact, by the name of the kind."""
    bridge_own: Mapping[str, Any]
    """Settings of each bridge, by the name of the bridge."""


def _read_database(value: str) -> str:
    """Check and return the address of a PostgreSQL database, or a path. Raises WrongProperty for an
    address of another database, which would otherwise be the path of a new file.
    """
    kind, separator, _ = read_text(value).partition("://")
    if separator and kind not in ("postgresql", "postgres"):
        raise WrongProperty(f"must be postgresql://… or the path of an SQLite file, not {value!r}")
    return value


def _read_addresses(value: str) -> tuple[str, ...]:
    for each in value.split():
        try:
            ipaddress.ip_address(each)
        except ValueError:
            text = (
                f"must be IP addresses, separated by spaces, not {each!r}; set the port with `port`"
            )
            raise WrongProperty(text) from None
    return tuple(value.split())


def _read_own_operators(value: str) -> tuple[str, ...]:
    own = tuple(value.split())
    get_operators(own)
    return own


def _read_own_contacts(value: str) -> tuple[str, ...]:
    own = tuple(value.split())
    get_contact_kinds(own)
    return own


def _make_price_key(kind: OperatorKind) -> Key:
    help_text = f"price of a credit with {kind.title} (satellite-credit-price)"
    return Key(f"{kind.name}-credit-price", read_credit_price, None, help_text)


_PRICE_KEYS = [_make_price_key(kind) for kind in get_operators().values()]
_OWN_KEYS = [key for kind in get_operators().values() for key in kind.keys]
_CONTACT_KEYS = [key for kind in get_contact_kinds().values() for key in kind.keys]
_BRIDGE_KEYS = [key for kind in get_bridges().values() for key in kind.keys]
KEYS = (
    Key(
        "database",
        _read_database,
        None,
        "postgresql://… or an SQLite file (~/.local/state/fieldagent/hub.sqlite3)",
    ),
    Key(
        "database-password-file",
        read_absolute_path,
        None,
        "file with PostgreSQL's password in its first line, instead of a password in the address",
    ),
    Key(
        "database-pooler",
        make_choice_reader("none", "transaction"),
        "none",
        "transaction: the address is a PgBouncer with pool_mode=transaction (none)",
    ),
    Key(
        "database-direct",
        read_text,
        None,
        "postgresql://… without the pooler, for notifications at once; without it, "
        "notifications take up to 3 s",
    ),
    Key("listen", _read_addresses, ("127.0.0.1", "::1"), "addresses to listen on (127.0.0.1 ::1)"),
    Key(
        "port", make_integer_reader(0, 65535, "port; 0 for any"), PORT, f"port of the hub ({PORT})"
    ),
    Key("tls-certificate", read_absolute_path, None, "PEM file with the certificate chain"),
    Key("tls-key", read_absolute_path, None, "PEM file with the key of the certificate"),
    Key(
        "console-address",
        read_tls_address,
        None,
        "https://NAME of the console for browsers: people can sign in with passkeys there"
        " (needs webauthn)",
    ),
    Key(
        "socket-listen",
        read_absolute_path,
        None,
        "Unix socket for a proxy on this machine, over plain HTTP; its X-Forwarded-For is trusted",
    ),
    Key(
        "proxy-listen",
        read_endpoint,
        None,
        "HOST:PORT for trusted-proxies that use the PROXY protocol, version 2",
    ),
    Key(
        "admin-listen",
        read_endpoint,
        None,
        "HOST:PORT of a separate listener for /metrics, /healthz and /livez; "
        "/metrics is then only at this address",
    ),
    Key(
        "trusted-proxies",
        read_networks,
        (),
        "networks whose X-Forwarded-For is trusted, such as 127.0.0.1/32",
    ),
    Key(
        "access-log",
        make_choice_reader("log", "json", "none"),
        "log",
        "access log with a line for each push, link, webhook post and refusal: log, json (one"
        " object per line on standard output) or none (log)",
    ),
    Key(
        "map-file",
        read_absolute_path,
        None,
        "PMTiles or MBTiles file for the console's map, raster or vector (docs/how-to/maps.md);"
        " without it, coastlines and borders",
    ),
    Key(
        "map-tiles",
        check_tile_address,
        None,
        "instead of map-file, a tile server, which learns from the browsers where you look:"
        " https://tiles.example.org/{z}/{x}/{y}.png",
    ),
    Key("map-attribution", read_text, None, "attribution of that map, as its licence requires"),
    Key(
        "satellite-grace",
        make_integer_reader(0, 86_400, "seconds"),
        60,
        "seconds that the IP link has before a satellite message is sent for credits (60)",
    ),
    Key(
        "satellite-credit-price",
        read_credit_price,
        None,
        "price of a credit, such as 0.12 EUR, for costs in `fieldagent hub usage` and the console",
    ),
    *_PRICE_KEYS,
    Key(
        "item-time-to-live",
        make_integer_reader(1, 2**31 - 1, "seconds"),
        604_800,
        "seconds after which an undelivered item expires (604800)",
    ),
    Key(
        "keep-days",
        make_integer_reader(1, 36_500, "days"),
        30,
        "days for which ended items are kept (30)",
    ),
    Key(
        "keep-audit-days",
        make_integer_reader(1, 36_500, "days"),
        400,
        "days for which the audit log is kept (400)",
    ),
    Key(
        "drain-seconds",
        make_integer_reader(0, 60, "seconds"),
        0,
        "seconds between SIGTERM, when /healthz answers 503, and the end of links and listeners"
        " (0)",
    ),
    Key(
        "synthetic-item",
        read_items_route,
        "off",
        "on: each minute the hub sends a test item to itself through push, store "
        "and webhook, and /metrics has the age of the last complete item; "
        "https://NAME of the hub: the item is pushed to this address, through the "
        "proxy and TLS (off)",
    ),
    Key(
        "extensions",
        add_extensions,
        (),
        "third-party extensions, package.module:NAME, separated by spaces"
        " (docs/how-to/add-a-satellite-modem.md)",
    ),
    Key(
        "operators",
        _read_own_operators,
        (),
        "third-party satellite operators, package.module:NAME, separated by spaces"
        " (docs/how-to/add-an-operator.md)",
    ),
    *_OWN_KEYS,
    Key(
        "webhook-allow",
        read_networks,
        (),
        "private networks in which webhooks may be, such as 10.1.0.0/16 (none)",
    ),
    Key(
        "contacts",
        _read_own_contacts,
        (),
        "third-party kinds of contact, package.module:NAME, separated by spaces"
        " (docs/how-to/add-an-operator.md)",
    ),
    Key(
        "kit-sms-per-day",
        make_integer_reader(0, 100_000, "SMS"),
        100,
        "maximum SMS per UTC day to one kit that sends SMS itself, for confirmations and waiting"
        " items (100)",
    ),
    *_CONTACT_KEYS,
    *_BRIDGE_KEYS,
)

EXAMPLES = {
    "satellite-credit-price": "0.12 EUR",
    **{key.name: "0.12 EUR" for key in _PRICE_KEYS},
    "map-file": "/var/lib/fieldagent-hub/alps.mbtiles",
    "map-tiles": "https://tiles.example.org/{z}/{x}/{y}.png",
    "map-attribution": "© the mapmakers",
    "database": "postgresql://fieldagent@db.example.org/fieldagent",
    "database-password-file": "/etc/fieldagent/database-password",
    "database-direct": "postgresql://fieldagent@db.example.org:5432/fieldagent",
    "tls-certificate": "/etc/fieldagent/chain.pem",
    "tls-key": "/etc/fieldagent/key.pem",
    "console-address": "https://hub.example.org",
    "socket-listen": "/run/fieldagent-hub/http.sock",
    "proxy-listen": "127.0.0.1:9445",
    "admin-listen": "127.0.0.1:9444",
    "trusted-proxies": "127.0.0.1/32 ::1/128",
    "webhook-allow": "10.1.0.0/16",
    **{name: text for kind in get_operators().values() for name, text in kind.examples.items()},
    **{name: text for kind in get_contact_kinds().values() for name, text in kind.examples.items()},
    **{name: text for kind in get_bridges().values() for name, text in kind.examples.items()},
}
"""Example values in the first settings file, for keys without a default. Secrets have no example,
because some users would keep the example as their secret."""

_TOGETHER = (("tls-certificate", "tls-key"),)


def is_behind_tls(settings: HubSettings) -> bool:
    """Return True if browsers reach the hub over TLS, which the hub or a proxy provides."""
    own = settings.tls_certificate is not None
    return own or bool(settings.trusted_proxies) or settings.socket_listen is not None


def find_price(settings: HubSettings, operator: str | None) -> Price | None:
    """Return the price per credit of an operator, or None if no price is configured."""
    return settings.operator_prices.get(operator or "", settings.satellite_credit_price)


def make_database_options(settings: HubSettings, *, upgrade: bool = False) -> DatabaseOptions:
    """Return the options for opening the database. If `upgrade` is True, the tables of an older
    version are upgraded to this version.
    """
    return DatabaseOptions(
        upgrade=upgrade,
        password_file=settings.database_password_file,
        pooled=settings.database_pooler == "transaction",
        direct=settings.database_direct,
    )


def get_default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `$XDG_CONFIG_HOME/fieldagent/hub.properties`, or the same file in `~/.config` if the
    variable is not set.
    """
    return find_xdg_directory(environ, "XDG_CONFIG_HOME", ".config") / "hub.properties"


ENVIRONMENT = "FIELDAGENT_HUB_"
"""Prefix of the environment variables that override the settings file."""


def load_settings(
    path: Path | None, database: str | None = None, environ: Mapping[str, str] = os.environ
) -> HubSettings:
    """Read the file at `path` and the environment. If `path` is None, read the default file, which
    may be missing. `database` overrides the database setting of both.

    Raises InvalidSettings with all errors, or OSError.
    """
    file = path or get_default_path(environ)
    text = read_file(file, is_required=path is not None)
    return parse_settings(
        add_environment(text, environ, ENVIRONMENT, _list_keys), file, database, environ
    )


def _list_keys(content: str) -> Sequence[Key]:
    """Return the keys that are allowed in a settings file, after loading the extensions that the
    file names.
    """
    with suppress(WrongProperty):
        add_extensions(dict(pairs_in(content)).get("extensions", ""))
    satellite = _list_kinds(content, "operators", get_operators)
    owners: Sequence[OperatorKind | ContactKind | BridgeKind] = [
        *satellite,
        *_list_kinds(content, "contacts", get_contact_kinds),
        *get_bridges().values(),
    ]
    return [*KEYS, *(key for each in owners for key in each.keys), *map(_make_price_key, satellite)]


def parse_settings(
    content: str,
    path: Path,
    database: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> HubSettings:
    """Return the settings in the text of a file. Error texts contain `path`. `database` overrides
    the database setting. Raises InvalidSettings with all errors.
    """
    with suppress(NoProperties, WrongProperty):
        # The reader of that key reports a module that cannot be loaded.
        add_extensions(dict(pairs_in(content)).get("extensions", ""))
    satellite = _list_kinds(content, "operators", get_operators)
    people = _list_kinds(content, "contacts", get_contact_kinds)
    owners: dict[str, Sequence[OperatorKind | ContactKind | BridgeKind]] = {
        "operator_own": satellite,
        "contact_own": people,
        "bridge_own": [*get_bridges().values()],
    }
    kinds = [kind for owner_kinds in owners.values() for kind in owner_kinds]
    own = [key for kind in kinds for key in kind.keys]
    prices = {kind.name: _make_price_key(kind) for kind in satellite}
    others = [key for key in [*own, *prices.values()] if key not in KEYS]
    values, pairs, faults = read(content, path, [*KEYS, *others], find_absent_extension)
    amounts = {name: values.pop(key.attribute) for name, key in prices.items()}
    values["operator_prices"] = {
        name: price for name, price in amounts.items() if price is not None
    }
    own_values = {key.name: values.pop(key.attribute) for key in own}
    for name, owner_kinds in owners.items():
        values[name] = {key.name: own_values[key.name] for kind in owner_kinds for key in kind.keys}
    faults += _find_incomplete_pairs(
        [*_TOGETHER, *(pair for kind in kinds for pair in kind.together)], pairs
    )
    faults += _find_contradictions(values, pairs)
    for name, owner_kinds in owners.items():
        faults += [fault for kind in owner_kinds for fault in kind.faults(values[name])]
    if faults:
        raise InvalidSettings(path, faults)
    if database:
        try:
            _read_database(database)
        except WrongProperty as wrong:
            raise InvalidSettings(Path("--database"), [str(wrong)]) from wrong
    if database or not values["database"]:
        values["database"] = database or str(find_state_directory(environ) / "hub.sqlite3")
    return HubSettings(**values)


def _find_incomplete_pairs(
    together: Iterable[tuple[str, str]], pairs: Mapping[str, Any]
) -> list[str]:
    """Return the errors about pairs of keys of which only one is set."""
    return [
        f"{name} needs {missing}: set that too, or remove {name}"
        for first, other in together
        for name, missing in ((first, other), (other, first))
        if name in pairs and missing not in pairs
    ]


def _find_contradictions(values: Mapping[str, Any], pairs: Mapping[str, Any]) -> list[str]:
    """Return the errors about contradictory settings. Each contradiction would leave users without
    TLS or without a map.
    """
    faults = []
    tls, proxies = values["tls_certificate"], values["trusted_proxies"]
    beyond = [a for a in values["listen"] if not ipaddress.ip_address(a).is_loopback]
    if beyond and "tls-certificate" not in pairs and not proxies:
        faults.append(
            f"listen is {' '.join(beyond)} without TLS: set tls-certificate and tls-key, or"
            " trusted-proxies when a proxy does TLS"
        )
    if "proxy-listen" in pairs and not proxies:
        faults.append("proxy-listen needs trusted-proxies: set that too, or remove proxy-listen")
    # A proxy that provides TLS is configured by trusted-proxies, or by the Unix socket on which it
    # connects.
    if values["console_address"] and not (tls or proxies or values["socket_listen"]):
        faults.append(
            "console-address needs tls-certificate: set that too, or remove console-address"
        )
    if values["map_file"] and values["map_tiles"]:
        faults.append("map-file and map-tiles cannot both be set: remove one of them")
    return faults


def _list_kinds(
    content: str, setting: str, get_kinds: Callable[[tuple[str, ...]], Mapping[str, T]]
) -> Sequence[T]:
    """Return the operators or the kinds of contact that the file may configure. If a third-party
    kind cannot be loaded, the error contains its key.
    """
    try:
        return [*get_kinds(tuple(dict(pairs_in(content)).get(setting, "").split())).values()]
    except (NoProperties, WrongProperty):
        return [*get_kinds(()).values()]
