"""Makes the files for cloud-init on a kit's card: host name, login, Wi-Fi.

Raspberry Pi OS and other systems with cloud-init read these files from the boot partition at the
first start (NoCloud). The files are JSON, which is valid YAML.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fieldagent.kit import card_format
from fieldagent.system.folder import rename_file, replace_file
from fieldagent.system.text_files import read_text_file

GROUPS = ["adm", "dialout", "netdev", "plugdev", "sudo"]
FILE_ORDER = ("meta-data", "network-config", "user-data")
"""Order in which the files are written. cloud-init reads the others only if the last one exists."""

_LOGIN = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
_KEY = re.compile(r"(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/]+=*( [^\n]*)?")
"""A line of a public key file; sshd(8), AUTHORIZED_KEYS FILE FORMAT."""


class UnfitValue(Exception):
    """Error: cloud-init or the system would refuse a value. The message contains the value and the
    reason.
    """


def make_user_data(host: str, login: str, keys: Sequence[str]) -> dict[str, Any]:
    """Return cloud-init's user data, with a user for these SSH keys, if any. Raises UnfitValue."""
    if not card_format.LABEL.fullmatch(host):
        raise UnfitValue(f"{host!r} is not a host name: use lowercase letters, digits and -")
    document: dict[str, Any] = {"hostname": host, "manage_etc_hosts": True}
    if not keys:
        return document
    if not _LOGIN.fullmatch(login) or login == "root":
        raise UnfitValue(f"{login!r} is not a login name")
    user = {
        "name": login,
        "groups": GROUPS,
        "shell": "/bin/bash",
        "lock_passwd": True,
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "ssh_authorized_keys": [*keys],
    }
    # Start sshd explicitly, because Raspberry Pi OS, unlike Debian, does not start it by default.
    start = [["systemctl", "enable", "--now", "ssh"]]
    return document | {"users": [user], "ssh_pwauth": False, "runcmd": start}


def make_network_config(name: str, password: str, country: str) -> dict[str, Any]:
    """Return the network settings for a Wi-Fi, in addition to a cable. If the password is empty,
    the Wi-Fi is open. Raises UnfitValue.
    """
    if not card_format.is_network_name(name):
        raise UnfitValue(f"{name!r} is not a Wi-Fi name: use 1 to 32 bytes")
    if not card_format.COUNTRY.fullmatch(country):
        raise UnfitValue("the Wi-Fi stays off until its country is known: --country CH")
    point = {"password": _derive_pre_shared_key(name, password)} if password else {}
    by_address = {"dhcp4": True, "dhcp6": True, "optional": True}
    wifi = {**by_address, "regulatory-domain": country, "access-points": {name: point}}
    return {"version": 2, "ethernets": {"eth0": by_address}, "wifis": {"wlan0": wifi}}


def _derive_pre_shared_key(name: str, password: str) -> str:
    """Return the key of WPA2 (IEEE 802.11, J.4), so that the card does not contain a password that
    is also used elsewhere.
    """
    if not card_format.is_pass_phrase(password):
        raise UnfitValue("a Wi-Fi's password must have 8 to 63 ASCII characters")
    return card_format.derive_pre_shared_key(name, password)


def read_public_keys(file: Path) -> Sequence[str]:
    """Return the keys of a file such as `id_ed25519.pub`. Raises UnfitValue, OSError."""
    try:
        lines = read_text_file(file).splitlines()
    except UnicodeDecodeError:
        lines = ["?"]
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys or not all(_KEY.fullmatch(line) for line in keys):
        raise UnfitValue(f"{file} is not an SSH public key, such as id_ed25519.pub")
    return keys


def format_files(user: Mapping[str, Any], network: Mapping[str, Any] | None) -> Mapping[str, str]:
    """Return the contents of the files, by name. If a content changes, cloud-init assumes another
    machine, and configures the system again.
    """
    files = {"user-data": "#cloud-config\n" + _format_file(user)}
    if network is not None:
        files["network-config"] = _format_file(network)
    content = hashlib.sha256("".join(files.values()).encode()).hexdigest()
    instance = {"instance-id": f"{user['hostname']}-{content[:12]}", "dsmode": "local"}
    return files | {"meta-data": _format_file(instance)}


def _format_file(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files. An existing file, such as a template of Raspberry Pi OS, is kept once as
    `.before`. Raises OSError.
    """
    for name in FILE_ORDER:
        if name not in files:
            continue
        file = folder / name
        before = file.with_name(f"{name}.before")
        if file.exists() and not before.exists():
            rename_file(file, before)
        replace_file(file, files[name].encode())
