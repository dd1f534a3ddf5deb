"""Files that `fieldagent hub device add --card` writes beside the agent's settings. They are made
for a card of build/image, or for cloud-init on other cards.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from fieldagent.cli.ask_password import ask_password
from fieldagent.kit import card_format, cloud_init
from fieldagent.kit.cloud_init import UnfitValue
from fieldagent.kit.provision import AUTHORITY, UPDATE_KEY
from fieldagent.system.folder import replace_file
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.minisign import NotSigned, parse_keys
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.terminal import escape_line
from fieldagent.system.text_files import read_text_file

IMAGE_OPTIONS = {
    "access_point": "--access-point",
    "kit_address": "--kit-address",
    "gateway": "--gateway",
    "dns": "--dns",
    "time_zone": "--time-zone",
}
CARD_OPTIONS = ("hostname", "ssh_key", "wifi", "ca_file", "update_key", *IMAGE_OPTIONS)


class CardFiles(NamedTuple):
    files: Mapping[str, str]
    """Contents of the files by name."""
    settings: list[tuple[str, str]]
    """Settings of the agent that these files need."""
    cloud_init: bool


def make_card_files(arguments: argparse.Namespace) -> CardFiles:
    """Return the files and settings that the arguments request. Raises UnfitValue if an argument is
    invalid, and OSError if a file that it names cannot be read.
    """
    if not any(getattr(arguments, word) for word in CARD_OPTIONS):
        return CardFiles({}, [], False)
    if arguments.card is None:
        raise UnfitValue("--card is missing: the card's boot partition")
    files, settings = {}, list[tuple[str, str]]()
    if arguments.ca_file:
        files[AUTHORITY] = _read_certificate(arguments.ca_file)
        settings.append(("hub-ca-file", f"/etc/fieldagent/{AUTHORITY}"))
    if arguments.update_key:
        files[UPDATE_KEY] = _update_key(arguments.update_key)
    keys = [key for file in arguments.ssh_key for key in cloud_init.read_public_keys(file)]
    if not (arguments.card / card_format.MARKER_FILE).exists():
        return CardFiles({**files, **_make_cloud_init_files(arguments, keys)}, settings, True)
    if keys:
        files["authorized_keys"] = "".join(f"{key}\n" for key in keys)
    files[card_format.NAME] = _make_properties(arguments)
    if arguments.access_point:
        settings += [("page-listen", card_format.CAMP_NETWORK)]
        settings += [("page-portal-port", str(card_format.PORTAL_PORT))]
    return CardFiles(files, settings, False)


def _make_cloud_init_files(arguments: argparse.Namespace, keys: list[str]) -> Mapping[str, str]:
    for word, option in IMAGE_OPTIONS.items():
        if getattr(arguments, word):
            raise UnfitValue(
                f"{option}: this card has no {card_format.MARKER_FILE}. Use it only with a card of"
                " build/image"
            )
    if not (arguments.hostname or keys or arguments.wifi):
        return {}
    user = cloud_init.make_user_data(arguments.hostname or arguments.name, arguments.login, keys)
    network = None
    if arguments.wifi:
        password = _read_password(arguments.wifi, ", empty for an open Wi-Fi")
        network = cloud_init.make_network_config(arguments.wifi, password, arguments.country)
    return cloud_init.format_files(user, network)


def _make_properties(arguments: argparse.Namespace) -> str:
    properties = {
        "hostname": arguments.hostname or arguments.name,
        "time-zone": arguments.time_zone,
        "address": arguments.kit_address,
        "gateway": arguments.gateway,
        "dns": arguments.dns,
        "country": arguments.country,
        "wifi": arguments.wifi,
        "access-point": arguments.access_point,
    }
    if arguments.wifi and (secret := _read_password(arguments.wifi, ", empty for an open Wi-Fi")):
        _check({"country": "CH", "wifi": arguments.wifi, "wifi-password": secret})
        properties["wifi-password"] = card_format.derive_pre_shared_key(arguments.wifi, secret)
    if arguments.access_point:
        # Keep the passphrase in plain text, because the kit shows it to phones.
        properties["access-point-password"] = _read_password(arguments.access_point, "")
    set_properties = {name: value for name, value in properties.items() if value}
    _check(set_properties)
    return _read_text(set_properties)


def _read_password(name: str, more: str) -> str:
    return ask_password(f"Password of {escape_line(name)}{more}")


def _read_text(settings: Mapping[str, str]) -> str:
    # Double each backslash, because it is the escape character of a properties file
    # (java.util.Properties).
    marked = {name: value.replace("\\", "\\\\") for name, value in settings.items()}
    return "".join(f"{name}={value}\n" for name, value in marked.items())


def _check(settings: Mapping[str, str]) -> None:
    try:
        card_format.parse(_read_text(settings), Path(card_format.NAME))
    except InvalidSettings as wrong:
        raise UnfitValue("; ".join(wrong.faults)) from None


def _read_certificate(file: Path) -> str:
    text = read_text_file(file, errors="replace")
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise UnfitValue(f"{file} is not a PEM certificate")
    return text


def _update_key(file: Path) -> str:
    text = read_text_file(file, errors="replace")
    try:
        parse_keys(text)
    except NotSigned as wrong:
        raise UnfitValue(f"{file}: {wrong}") from None
    return text


def write(folder: Path, files: CardFiles) -> None:
    """Write the files beside the agent's settings on the card at `folder`. Raises OSError if a file
    cannot be written.
    """
    if files.cloud_init:
        cloud_init.write(folder, files.files)
    for name, text in files.files.items():
        if name not in cloud_init.FILE_ORDER:
            replace_file(folder / name, text.encode())
