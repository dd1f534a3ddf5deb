"""The settings file, `agent.properties`. It contains Java properties and is read once, at the
start.

`KEYS` contains the settings of the core. `list_all_keys` also returns the settings of extensions;
the installer's file and `docs/reference/settings.md` are made from them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fieldagent.agent import satellite_settings
from fieldagent.agent.channels.healing import (
    HealingStep,
    find_healing_faults,
    read_steps_of_link,
)
from fieldagent.agent.kit_part import (
    KitPart,
    find_station_part,
    get_kit_parts,
    list_kind_keys,
    list_part_keys,
)
from fieldagent.agent.satellites.registry import AUTO
from fieldagent.agent.satellites.registry import list_own_keys as modem_keys
from fieldagent.extensions import add_extensions, find_absent_extension
from fieldagent.http.address import Network
from fieldagent.package.delivery import FanOut
from fieldagent.package.package import Channel
from fieldagent.system.directories import find_state_directory, find_xdg_directory
from fieldagent.system.java_properties import NoProperties
from fieldagent.system.java_properties import read_pairs as pairs_in
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.price import Price
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
    read_url,
)
from fieldagent.webhook.signature import read_secrets
from fieldagent.wire.command import VERB_BY_NAME, VERBS

API_PORT, PAGE_PORT = 9091, 9092
CANNED = "All well; On our way; Delayed, all well; Arrived; Please call"
CANNED_MOST, CANNED_CHARACTERS = 20, 160
ALLOWED_VERBS = tuple(verb.name for verb in VERBS if verb.allowed)


@dataclass(frozen=True, slots=True)
class Settings:
    inbound_hook: str | None
    inbound_hook_deadline: float
    inbound_dead_letters: str
    webhook_address: str | None
    webhook_secret: tuple[str, ...]
    satellite_port: str | None
    satellite_modem: str
    satellite_baud: int | None
    satellite_credits_per_day: int | None
    satellite_bytes_per_day: int | None
    satellite_sos_reserve: int | None
    satellite_credit_price: Price | None
    satellite_mailbox_check: float | None
    satellite_registration: str
    satellite_heal: tuple[HealingStep, ...] | None
    satellite_recovery_command: str | None
    satellite_key: tuple[bytes, ...]
    satellite_receipts: str
    satellite_own: Mapping[str, Any]
    """Settings of the configured kind of satellite modem, by name."""
    hub_address: str | None
    hub_token: str | None
    hub_ca_file: Path | None
    cellular_interface: str | None
    cellular_ping: int | None
    cellular_heal: tuple[HealingStep, ...] | None
    cellular_recovery_command: str | None
    cellular_recovery_after: int
    extensions: tuple[str, ...]
    """Import paths (`module:NAME`) of third-party extensions."""
    parts: Mapping[str, Any]
    """The settings of each extension's part, by the part's name. Empty if the file has no setting
    of an extension."""
    fan_out: FanOut
    fan_out_until: str
    fan_out_head_start: int
    sos_repeat: int
    sos_until: str
    sos_track: int
    package_time_to_live: int
    state_directory: Path
    keep_ended_count: int
    keep_ended_days: int
    gpsd: tuple[str, int] | None
    remote_commands: tuple[str, ...]
    update_address: str | None
    update_key: Path
    map_file: Path | None
    page_listen: tuple[Network, ...]
    page_port: int
    page_portal_port: int | None
    canned_messages: tuple[str, ...]
    api_port: int


_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def read_hub_address(value: str) -> str:
    """Parse the hub's address: https://HOST, or http:// on loopback. The result has no final slash.
    Raises WrongProperty for any other value.
    """
    parts = urlsplit(read_url(value))
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None:
        raise WrongProperty(f"must be https:// and a host, with an optional port, not {value!r}")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise WrongProperty(
            f"must be https:// (http:// only for {', '.join(_LOOPBACK)}), not {value!r}"
        )
    return value.rstrip("/")


def _read_token(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._~+/-]+=*", value):
        raise WrongProperty("must be the link token as the hub showed it, without blanks")
    return value


def _read_interface(value: str) -> str:
    """Parse the name of a network interface. IFNAMSIZ (linux/if.h) allows 15 characters, and the
    kernel's dev_valid_name defines the allowed characters.
    """
    if not re.fullmatch(r"[^\s/:]{1,15}", value) or value in (".", ".."):
        raise WrongProperty(f"must be the name of a network interface such as wwan0, not {value!r}")
    return value


def _read_ping(value: str) -> int:
    return 0 if value == "0" else make_integer_reader(5, 86_400, "seconds; 0 for never")(value)


def _read_gpsd(value: str) -> tuple[str, int] | None:
    return None if value == "none" else read_endpoint(value)


def _read_fan_out(value: str) -> FanOut:
    return FanOut(make_choice_reader(*(kind.value for kind in FanOut))(value))


def read_command_names(value: str) -> tuple[str, ...]:
    """Parse a list of command names such as `status log`, or `none`. Raises WrongProperty for any
    other value.
    """
    if value == "none":
        return ()
    names = tuple(dict.fromkeys(value.replace(",", " ").split()))
    if unknown := [name for name in names if name not in VERB_BY_NAME]:
        raise WrongProperty(f"has {unknown[0]!r}: use {', '.join(VERB_BY_NAME)}, or none")
    return names


def _read_canned(value: str) -> tuple[str, ...]:
    """Parse `none`, or texts separated by semicolons. Raises WrongProperty for any other value."""
    texts = () if value == "none" else tuple(each.strip() for each in value.split(";"))
    fits = all(0 < len(each) <= CANNED_CHARACTERS for each in texts)
    if not fits or len(texts) > CANNED_MOST:
        raise WrongProperty(
            f"must be none, or at most {CANNED_MOST} texts of 1 to {CANNED_CHARACTERS}"
            " characters, separated by semicolons"
        )
    return texts


KEYS = (
    Key(
        "inbound-hook",
        read_text,
        None,
        "shell command that runs once for each inbound payload, with the JSON on standard input"
        " and in AGENT_PAYLOAD",
    ),
    Key(
        "inbound-hook-deadline",
        make_integer_reader(1, 3600, "seconds"),
        60,
        "maximum seconds that the hook may take (60)",
    ),
    Key(
        "inbound-dead-letters",
        make_choice_reader("keep", "hook"),
        "keep",
        "keep: store unreadable messages, for `fieldagent inbound list`; hook: also pass them"
        " to the hook, as Data with their `source` (keep)",
    ),
    Key("webhook-address", read_url, None, "URL to which each inbound payload is posted"),
    Key(
        "webhook-secret",
        read_secrets,
        (),
        "secret that signs these posts (Standard Webhooks, whsec_…); to rotate, "
        "set two with a space between them",
    ),
    *satellite_settings.KEYS,
    Key(
        "hub-address",
        read_hub_address,
        None,
        "address of the hub: https://host or https://host:port (http:// only on this machine)",
    ),
    Key(
        "hub-token", _read_token, None, "link token of this kit, which `fieldagent hub` shows once"
    ),
    Key(
        "hub-ca-file",
        read_absolute_path,
        None,
        "PEM file of a private hub's certificate authority, instead of the system's authorities",
    ),
    Key(
        "cellular-interface",
        _read_interface,
        None,
        "the only network interface for the link, such as wwan0 (any)",
    ),
    Key(
        "cellular-ping",
        _read_ping,
        None,
        "seconds of silence after which the link is tested with about 170 bytes; 0 for never"
        " (45 at first, up to 300 if the network keeps idle connections)",
    ),
    Key(
        "cellular-heal",
        read_steps_of_link,
        None,
        "recovery steps if the hub is unreachable, in this order: gpio:LINE (the modem's"
        " reset), usb:DEVICE (its port), command; or none (the command, if it is set)",
    ),
    Key(
        "cellular-recovery-command",
        read_text,
        None,
        "shell command that restarts the cellular modem",
    ),
    Key(
        "cellular-recovery-after",
        make_integer_reader(60, 604_800, "seconds"),
        600,
        "seconds without the hub before the first step, and between two steps (600)",
    ),
    Key(
        "extensions",
        add_extensions,
        (),
        "third-party extensions, package.module:NAME, separated by spaces"
        " (docs/how-to/add-a-satellite-modem.md)",
    ),
    Key(
        "fan-out",
        _read_fan_out,
        FanOut.EVERY,
        "use of the other channels after the first success: every (continue), first (cancel),"
        " cheapest (cancel, and give each cheaper channel a head start). Satellite never sends"
        " an item that the hub has confirmed. An SOS uses all channels (every)",
    ),
    Key(
        "fan-out-until",
        make_choice_reader("hub", "heard"),
        "hub",
        "when radio counts as a success for `first` and `cheapest`: hub (the hub has the item),"
        " heard (another kit has it, even one that never reaches the hub) (hub)",
    ),
    Key(
        "fan-out-head-start",
        make_integer_reader(1, 86_400, "seconds"),
        120,
        "longest head start in seconds with `cheapest`, of cellular before radio and of radio"
        " before satellite; shorter for a channel that has been faster (120)",
    ),
    Key(
        "sos-repeat",
        make_integer_reader(0, 86_400, "seconds; 0 for never"),
        600,
        "seconds between two transmissions of an open SOS on each channel; 0: never (600)",
    ),
    Key(
        "sos-until",
        make_choice_reader("person", "hub"),
        "person",
        "event that ends the repeats of an SOS by radio: person (a person has seen it) or hub"
        " (the hub has it). Over satellite, they end once the hub has it (person)",
    ),
    Key(
        "sos-track",
        make_integer_reader(0, 86_400, "seconds; 0 for never"),
        600,
        "seconds between two positions from gpsd for an open SOS; every minute on channels"
        " without cost; 0 for never (600)",
    ),
    Key(
        "package-time-to-live",
        make_integer_reader(1, 2**31 - 1, "seconds"),
        86_400,
        "seconds after which a waiting Package ends as Error with the reason expired (86400)."
        " An SOS never expires",
    ),
    Key(
        "state-directory",
        read_text,
        None,
        "folder of the journal (~/.local/state/fieldagent; /var/lib/fieldagent for the unit)",
    ),
    Key(
        "keep-ended-count",
        make_integer_reader(0, 10_000_000, "Packages"),
        10_000,
        "maximum number of ended Packages whose answers are kept (10000)",
    ),
    Key(
        "keep-ended-days",
        make_integer_reader(0, 36_500, "days"),
        7,
        "days for which the answers of ended Packages are kept (7)",
    ),
    Key(
        "gpsd",
        _read_gpsd,
        ("127.0.0.1", 2947),
        "HOST:PORT of a gpsd that gives the time while the system clock is not trusted; none"
        " for never (127.0.0.1:2947)",
    ),
    Key(
        "remote-commands",
        read_command_names,
        ALLOWED_VERBS,
        "commands that the hub may send to this kit, from "
        + ", ".join(VERB_BY_NAME)
        + "; none for none"
        f" ({' '.join(ALLOWED_VERBS)})",
    ),
    Key(
        "update-address",
        read_url,
        None,
        "URL of the program for `sudo fieldagent update`; the signature is checked "
        "each day, and `status` reports 60 days without a newer one",
    ),
    Key(
        "update-key",
        read_absolute_path,
        Path("/etc/fieldagent/update.pub"),
        "file with trusted minisign public keys (/etc/fieldagent/update.pub)",
    ),
    Key(
        "map-file",
        read_absolute_path,
        None,
        "PMTiles or MBTiles file for the map of the page, raster or vector"
        " (docs/how-to/maps.md); without it, coastlines and a grid",
    ),
    Key(
        "page-listen",
        read_networks,
        (),
        "networks that may open the page and use the API, with TLS and the passphrase of"
        " `fieldagent page --set`; without it, only this machine",
    ),
    Key(
        "page-port",
        make_integer_reader(1, 65535, "port"),
        PAGE_PORT,
        f"port of the page for the network ({PAGE_PORT})",
    ),
    Key(
        "page-portal-port",
        make_integer_reader(1, 65535, "port"),
        None,
        "HTTP port that shows phones on the kit's own network the address of the "
        "page (docs/how-to/access-point.md)",
    ),
    Key(
        "canned-messages",
        _read_canned,
        _read_canned(CANNED),
        f"texts that the page sends with two presses, separated by semicolons, or none ({CANNED})",
    ),
    Key(
        "api-port",
        make_integer_reader(0, 65535, "port; 0 for any"),
        API_PORT,
        "port of the local API (9091)",
    ),
)


EXAMPLE_VALUES = {
    "canned-messages": "All well; Storm, we stay; Back at the hut",
    "update-address": "https://example.org/fieldagent.pyz",
    "inbound-hook": "/usr/local/lib/fieldagent-hook",
    "webhook-address": "http://127.0.0.1:8080/",
    "hub-address": "https://hub.example.org",
    "hub-ca-file": "/etc/fieldagent/hub-ca.pem",
    "cellular-interface": "wwan0",
    "cellular-ping": "300",
    "cellular-heal": "usb:1-1.2 command",
    "cellular-recovery-command": "/usr/local/sbin/reset-modem",
    **satellite_settings.EXAMPLE_VALUES,
    "state-directory": "/var/lib/fieldagent",
    "map-file": "/var/lib/fieldagent/alps.mbtiles",
    "page-listen": "192.168.4.0/24",
    "page-portal-port": "9093",
}
"""Example values for keys without a default. There are no examples for secrets, because some users
would keep an example."""


def get_default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `$XDG_CONFIG_HOME/fieldagent/agent.properties`, or the same file in `~/.config` if the
    variable is not set.
    """
    return find_xdg_directory(environ, "XDG_CONFIG_HOME", ".config") / "agent.properties"


INSTALLED = Path("/etc/fieldagent/agent.properties")
"""Settings file of the systemd unit, whose state is in /var/lib/fieldagent."""


ENVIRONMENT = "FIELDAGENT_AGENT_"
"""Prefix of environment variables that override settings of the file."""


def load(path: Path | None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings from the file at `path` and the environment. If `path` is None, read the
    default file, which may be missing.

    Raises InvalidSettings with all errors, or OSError.
    """
    file = path or get_default_path(environ)
    text = read_file(file, is_required=path is not None)
    return parse(add_environment(text, environ, ENVIRONMENT, _load_keys), file, environ)


def _load_keys(text: str) -> Sequence[Key]:
    """Load the extensions that a settings text names, and return `list_allowed_keys` of the
    text.
    """
    with suppress(WrongProperty):
        add_extensions(_read_pairs(text).get("extensions", ""))
    return list_allowed_keys(text)


def list_all_keys() -> Sequence[Key]:
    """Return the keys of the core and of all extensions, without the keys of single devices."""
    return [*KEYS, *modem_keys({"satellite-modem": AUTO}), *list_part_keys()]


def list_allowed_keys(text: str) -> Sequence[Key]:
    """Return the keys that are allowed in a settings file with this text. They depend on the
    devices that the text configures.
    """
    pairs = _read_pairs(text)
    kind_keys = [key for part in get_kit_parts().values() for key in list_kind_keys(part, pairs)]
    return [*list_all_keys(), *kind_keys]


def get_channels(settings: Settings) -> frozenset[Channel]:
    """Return the channels for which a port or an address is configured."""
    is_configured = {
        Channel.SATELLITE: settings.satellite_port is not None,
        Channel.CELLULAR: settings.hub_address is not None,
        Channel.RADIO: find_station_part(settings.parts) is not None,
    }
    return frozenset(channel for channel, configured in is_configured.items() if configured)


def get_examples() -> Mapping[str, str]:
    """Return `EXAMPLE_VALUES` together with the examples of extensions."""
    of_parts = {
        name: text for part in get_kit_parts().values() for name, text in part.examples.items()
    }
    return {**EXAMPLE_VALUES, **of_parts}


def get_needs() -> Mapping[str, str]:
    """Return REQUIRED_SETTINGS together with the required settings of extensions."""
    of_parts = {
        name: other for part in get_kit_parts().values() for name, other in part.needs.items()
    }
    return {**REQUIRED_SETTINGS, **of_parts}


def parse(text: str, path: Path, environ: Mapping[str, str] = os.environ) -> Settings:
    """Parse the text of the settings file at `path`, and return the settings. Raises
    InvalidSettings with all errors.
    """
    settings = _read_pairs(text)
    with suppress(WrongProperty):
        # If an extension cannot be loaded, the check of the setting `extensions` reports the error.
        add_extensions(settings.get("extensions", ""))
    of_modem = modem_keys(settings)
    # For a file with only the settings of the core, load no part of an extension.
    has_more = bool(settings.keys() - {key.name for key in (*KEYS, *of_modem)})
    parts = get_kit_parts() if has_more else {}
    of_kinds = {name: list_kind_keys(part, settings) for name, part in parts.items()}
    of_parts = [key for name, part in parts.items() for key in (*part.keys, *of_kinds[name])]
    keys = [*KEYS, *of_modem, *of_parts]
    values, pairs, faults = read(text, path, keys, find_absent_extension)
    values["parts"] = {
        name: _make_own(part, of_kinds[name], values) for name, part in parts.items()
    }
    values["satellite_own"] = {key.name: values.pop(key.attribute) for key in of_modem}
    faults += _find_missing_settings(pairs, get_needs() if parts else REQUIRED_SETTINGS)
    faults += [fault for part in parts.values() for fault in part.faults(pairs)]
    if faults:
        raise InvalidSettings(path, faults)
    if path == INSTALLED:
        # Use the agent unit's directory for all programs that read these settings: `fieldagent
        # check` has no STATE_DIRECTORY, and root's units may have another (systemd.exec(5),
        # StateDirectory=).
        environ = {**environ, "STATE_DIRECTORY": "/var/lib/fieldagent"}
    directory = values["state_directory"]
    values["state_directory"] = Path(directory) if directory else find_state_directory(environ)
    return Settings(**values)


def _make_own(part: KitPart, kind_keys: Sequence[Key], values: dict[str, Any]) -> Any:
    """Return the settings object of a part (`KitPart.own`), and remove its values from `values`."""
    own = [values.pop(key.attribute) for key in part.keys]
    if part.load_kind is not None:
        own.append({key.name: values.pop(key.attribute) for key in kind_keys})
    return part.own(*own)


REQUIRED_SETTINGS = {
    "hub-address": "hub-token",
    "hub-token": "hub-address",
    "hub-ca-file": "hub-address",
    "cellular-interface": "hub-address",
    "cellular-heal": "hub-address",
    "cellular-recovery-command": "hub-address",
    **satellite_settings.REQUIRED_SETTINGS,
}
"""Name of each setting that requires another setting, and the name of the other setting."""


def _read_pairs(text: str) -> Mapping[str, str]:
    """Return the names and values in the text of a settings file, or an empty mapping if the text
    is not a properties file.
    """
    try:
        return dict(pairs_in(text))
    except NoProperties:
        return {}


def _find_missing_settings(
    pairs: Mapping[str, str], required_settings: Mapping[str, str]
) -> list[str]:
    faults = [
        f"{name} needs {other}: set that too, or remove {name}"
        for name, other in required_settings.items()
        if name in pairs and other not in pairs
    ]
    faults += find_healing_faults(pairs)
    return faults
