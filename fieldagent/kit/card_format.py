"""The format of `kit.properties`, which configures the name and the network of a card of
`build/image`. Also makes the resulting files for Debian's programs. Pure.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fieldagent.system.properties import InvalidSettings, Key, WrongProperty, read

NAME = "kit.properties"
MARKER_FILE = "kit.txt"
"""File on the boot partition of a card that `build/image` made. Other cards are configured by
cloud-init or manually."""
ADAPTER = "wlan0"
CAMP = "192.168.4.1/24"
"""Address and network of a kit that is a Wi-Fi access point."""
CAMP_NETWORK = "192.168.4.0/24"
PORTAL_PORT = 9093
"""Value of the agent's `page-portal-port`."""

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""A label of a host name (RFC 1123, 2.1)."""
COUNTRY = re.compile(r"[A-Z]{2}")
_ZONE = re.compile(r"[A-Za-z0-9+_-]+(/[A-Za-z0-9+_-]+)*")
_PRE_SHARED = re.compile(r"[0-9a-f]{64}")


def read_host_name(value: str) -> str:
    """Parse a host name: a single label in lower case, at most 63 characters. Raises WrongProperty
    for any other value.
    """
    if not LABEL.fullmatch(value):
        raise WrongProperty(
            f"must be a host name of lowercase letters, digits and -, not {value!r}"
        )
    return value


def read_country(value: str) -> str:
    """Parse a country code of two capital letters. Whether the country exists is not checked.
    Raises WrongProperty for any other value.
    """
    if not COUNTRY.fullmatch(value):
        raise WrongProperty(f"must be a country in two capitals, such as CH, not {value!r}")
    return value


def is_network_name(text: str) -> bool:
    """Return True if a Wi-Fi can have this name: 1 to 32 bytes of UTF-8, all printable."""
    return 1 <= len(text.encode()) <= 32 and text.isprintable()


def is_pass_phrase(text: str) -> bool:
    """Return True if WPA2 accepts the passphrase (IEEE 802.11, J.4.1)."""
    return 8 <= len(text) <= 63 and text.isascii() and text.isprintable()


def read_network_name(value: str) -> str:
    """Parse the name of a Wi-Fi: 1 to 32 bytes of printable UTF-8. Raises WrongProperty for any
    other value.
    """
    if not is_network_name(value):
        raise WrongProperty(f"must be a Wi-Fi name of 1 to 32 bytes, not {value!r}")
    return value


def read_password(value: str) -> str:
    """Parse a Wi-Fi password that a person has typed, or the key that was derived from it
    (`derive_pre_shared_key`). Raises WrongProperty for any other value.
    """
    if _PRE_SHARED.fullmatch(value):
        return value
    if not is_pass_phrase(value):
        raise WrongProperty("must have 8 to 63 ASCII characters")
    return value


def read_time_zone(value: str) -> str:
    """Parse the name of a time zone. Only `card.check_settings` checks whether it exists. Raises
    WrongProperty for any other value.
    """
    if not _ZONE.fullmatch(value):
        raise WrongProperty(f"must be a time zone such as Europe/Zurich, not {value!r}")
    return value


def read_interface(value: str) -> str:
    """Parse an IPv4 or IPv6 address with a prefix length, such as 10.0.0.5/24. Raises WrongProperty
    for any other value.
    """
    try:
        if "/" in value:
            return str(ipaddress.ip_interface(value))
    except ValueError:
        pass
    raise WrongProperty(
        f"must be an address with its network, such as 192.168.1.5/24, not {value!r}"
    )


def read_address(value: str) -> str:
    """Parse an IPv4 or IPv6 address without a prefix length. Raises WrongProperty for any other
    value.
    """
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise WrongProperty(f"must be an address such as 192.168.1.1, not {value!r}") from None


KEYS = (
    Key("hostname", read_host_name, "", "Name of the kit in its network"),
    Key("time-zone", read_time_zone, "", "Time zone, such as `Europe/Zurich`; UTC if empty"),
    Key("address", read_interface, "", "Wired address with its prefix length; DHCP if empty"),
    Key("gateway", read_address, "", "Gateway of the wired network"),
    Key("dns", read_address, "", "DNS server of the wired network"),
    Key("country", read_country, "", "Country whose Wi-Fi rules apply"),
    Key("wifi", read_network_name, "", "Name of the Wi-Fi that the kit joins"),
    Key(
        "wifi-password",
        read_password,
        "",
        "Password of that Wi-Fi, or its 64-digit key; empty for an open network",
    ),
    Key("access-point", read_network_name, "", "Name of the kit's own Wi-Fi"),
    Key("access-point-password", read_password, "", "Password of the kit's own Wi-Fi"),
)
REQUIRED_SETTINGS = {
    "gateway": "address",
    "dns": "address",
    "wifi": "country",
    "wifi-password": "wifi",
    "access-point": "country",
    "access-point-password": "access-point",
}


def parse(text: str, path: Path) -> dict[str, str]:
    """Parse the file, and return the settings by name. Raises InvalidSettings with all errors in
    the file.
    """
    values, pairs, faults = read(text, path, KEYS)
    faults += [
        f"{name} needs {other}"
        for name, other in REQUIRED_SETTINGS.items()
        if name in pairs and other not in pairs
    ]
    if "wifi" in pairs and "access-point" in pairs:
        faults.append("wifi and access-point are both set: one adapter does one of them")
    if "access-point" in pairs and "access-point-password" not in pairs:
        faults.append("access-point needs access-point-password")
    if faults:
        raise InvalidSettings(path, faults)
    settings: dict[str, Any] = {name: values[name.replace("-", "_")] for name in pairs}
    return settings


def derive_pre_shared_key(name: str, secret: str) -> str:
    """Return the pre-shared key of WPA2 (IEEE 802.11, J.4) as 64 hexadecimal digits. The file
    contains the key, because the password may also be used elsewhere.
    """
    if _PRE_SHARED.fullmatch(secret):
        return secret
    return hashlib.pbkdf2_hmac("sha1", secret.encode(), name.encode(), 4096, 32).hex()


def make_files(card_settings: Mapping[str, str]) -> dict[str, str]:
    """Return the files for Debian's programs, by path."""
    files = {}
    if host := card_settings.get("hostname"):
        files["etc/hostname"] = f"{host}\n"
        files["etc/hosts"] = f"127.0.0.1 localhost\n127.0.1.1 {host}\n::1 localhost\n"
    if own := card_settings.get("address"):
        lines = [f"Address={own}"]
        lines += [f"Gateway={card_settings['gateway']}"] if "gateway" in card_settings else []
        lines += [f"DNS={card_settings['dns']}"] if "dns" in card_settings else []
        files["etc/systemd/network/70-kit-cable.network"] = _format_network("Type=ether", *lines)
    if name := card_settings.get("wifi"):
        files["etc/systemd/network/70-kit-wifi.network"] = _format_network(
            f"Name={ADAPTER}", "DHCP=yes"
        )
        files[f"etc/wpa_supplicant/wpa_supplicant-{ADAPTER}.conf"] = _format_client(
            name, card_settings
        )
    if name := card_settings.get("access-point"):
        lines = [f"Address={CAMP}", "ConfigureWithoutCarrier=yes"]
        files["etc/systemd/network/70-kit-wifi.network"] = _format_network(
            f"Name={ADAPTER}", *lines
        )
        files["etc/hostapd/hostapd.conf"] = _format_access_point(name, card_settings)
        files["etc/dnsmasq.d/kit.conf"] = _NAMES
        files["etc/nftables.conf"] = _PORTAL
    return files


def list_units(card_settings: Mapping[str, str]) -> list[str]:
    """Return the systemd units to start."""
    if "access-point" in card_settings:
        return ["nftables.service", "hostapd.service", "dnsmasq.service"]
    return [f"wpa_supplicant@{ADAPTER}.service"] if "wifi" in card_settings else []


def _format_network(match: str, *lines: str) -> str:
    return "\n".join(["[Match]", match, "[Network]", *lines, ""])


def _format_client(name: str, card_settings: Mapping[str, str]) -> str:
    secret = card_settings.get("wifi-password")
    key = "key_mgmt=NONE" if secret is None else f"psk={derive_pre_shared_key(name, secret)}"
    network = f"network={{\n\tssid={name.encode().hex()}\n\tscan_ssid=1\n\t{key}\n}}\n"
    return f"ctrl_interface=/run/wpa_supplicant\ncountry={card_settings['country']}\n{network}"


def _format_access_point(name: str, card_settings: Mapping[str, str]) -> str:
    secret = card_settings["access-point-password"]
    kind = "wpa_psk" if _PRE_SHARED.fullmatch(secret) else "wpa_passphrase"
    return f"""\
interface={ADAPTER}
country_code={card_settings["country"]}
ssid={name}
utf8_ssid=1
hw_mode=g
channel=6
wpa=2
wpa_key_mgmt=WPA-PSK
rsn_pairwise=CCMP
{kind}={secret}
"""


_HOST = CAMP.partition("/")[0]
_NAMES = f"""\
# There is nothing else to find: every name is the kit's.
interface={ADAPTER}
bind-dynamic
no-resolv
address=/#/{_HOST}
dhcp-range=192.168.4.20,192.168.4.200,12h
"""
_PORTAL = f"""\
# Phones ask at port 80, which the agent may not open.
table ip kit {{
  chain portal {{
    type nat hook prerouting priority dstnat
    iifname "{ADAPTER}" tcp dport 80 redirect to :{PORTAL_PORT}
  }}
}}
"""
