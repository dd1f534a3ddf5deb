"""`fieldagent hub device set`: settings for a kit, signed by its operator, over the IP link.

The hub never has the secret key. The kit verifies the signature, the hub does not. If --secret-key
is missing, the text is only written to a file. After the file was signed elsewhere, the same
command sends it.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from fieldagent.agent.from_afar import LOCAL_ONLY_SETTINGS
from fieldagent.agent.settings import list_all_keys
from fieldagent.cli.hub.opened_store import Result, make_store_command
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records import audit, kit_report
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.minisign import NotSigned, parse_signature
from fieldagent.system.properties import WrongProperty, describe_unknown_setting
from fieldagent.system.wording import describe_reason
from fieldagent.wire.kit_note import OFFER_MAX
from fieldagent.wire.settings_change import NotAChange, SettingsChange, parse_change


class SettingsRecipient(NamedTuple):
    """Kit that the signed settings are for."""

    workspace: int
    device: int
    name: str
    kit: str
    """Id of the kit in the signed text."""
    last: int
    """Number of the last settings that were sent to the kit."""


@make_store_command
def offer_settings(arguments: argparse.Namespace, _: HubSettings, store: Store) -> Result:
    """Write settings for a kit to a file, sign it with minisign, and offer it to the kit. If
    --secret-key is missing, only write the file. A later call without settings offers the signed
    file.
    """
    # Signing may take long, so no transaction is open during it.
    kit = store.run_once(lambda db: find_kit(db, arguments))
    file = arguments.file or Path(f"device-{kit.device}.settings")
    if arguments.settings:
        number = max(int(time.time()), kit.last + 1)
        write(file, make_change(kit, arguments.settings, number))
        if arguments.secret_key is None:
            return _list_for_signature(file, arguments.device)
        sign(file, arguments.secret_key)
    change = store.run_once(lambda db: _offer(db, find_kit(db, arguments), file, time.time()))
    return {
        "id": kit.device,
        "number": change.number,
        "settings": ", ".join(name for name, _ in change.pairs),
        "next": "`fieldagent hub device list` shows the result",
    }


def find_kit(db: Db, arguments: argparse.Namespace) -> SettingsRecipient:
    """Return the kit for which the settings are signed. Raises Refused, for example if the device
    has no link token.
    """
    workspace = directory.find_workspace(db, arguments.workspace)
    device = directory.find_device_named(db, workspace, arguments.device)
    ((name, kit),) = db.execute("SELECT name, link_token FROM device WHERE id = ?", device)
    if kit is None:
        raise Refused(
            f"{name} has no link token: create one with `fieldagent hub device token {device}`"
        )
    return SettingsRecipient(workspace, device, name, kit, kit_report.read_last_number(db, device))


def make_change(
    kit: SettingsRecipient, settings: Sequence[str], settings_number: int
) -> SettingsChange:
    """Return the settings change in arguments of the form NAME=VALUE. Raises Refused if a name is
    unknown, a value is invalid, or the setting can only be set on the kit.
    """
    key_by_name = {key.name: key for key in list_all_keys()}
    pairs = []
    for each in settings:
        name, between, value = each.partition("=")
        if not between:
            raise Refused(f"{each!r} is not a setting: use NAME=VALUE, or NAME= to remove it")
        if name not in key_by_name:
            raise Refused(describe_unknown_setting(name, key_by_name))
        if name in LOCAL_ONLY_SETTINGS:
            raise Refused(f"{name} can only be set on the kit: {LOCAL_ONLY_SETTINGS[name]}")
        try:
            key_by_name[name].read(value) if value else None
        except WrongProperty as wrong:
            raise Refused(f"{name} {wrong}") from None
        pairs.append((name, value))
    return SettingsChange(kit.name, kit.kit, settings_number, tuple(pairs))


def write(file: Path, change: SettingsChange) -> None:
    """Write the text to a file, for signing. Raises Refused if the text is too long, or the file
    cannot be written.
    """
    try:
        text = change.format_text()
        if len(text) > OFFER_MAX:
            raise Refused(
                f"the settings have more than {OFFER_MAX} characters: send them in two parts"
            )
        file.write_text(text)
    except NotAChange as wrong:
        raise Refused(str(wrong)) from None
    except OSError as error:
        raise Refused(f"{file} cannot be written: {describe_reason(error)}") from None


def _list_for_signature(file: Path, device: str) -> dict[str, str]:
    later_command = f"fieldagent hub device set {device} --file {file}"
    return {
        "file": str(file),
        "next": f"read it, sign it with `minisign -Sm {file}`, then `{later_command}`",
    }


def sign(file: Path, key: Path, *options: str) -> None:
    """Sign the file with minisign. `options` are further command-line options. Raises Refused if
    minisign is missing or fails.
    """
    try:
        signing = subprocess.run(["minisign", "-Sm", file, "-s", key, *options])
    except FileNotFoundError:
        raise Refused("minisign is not installed: install it, or sign on another machine") from None
    if signing.returncode:
        raise Refused(f"nothing was sent: minisign has not signed {file}")


def _offer(db: Db, kit: SettingsRecipient, file: Path, now: float) -> SettingsChange:
    signed = file.with_name(f"{file.name}.minisig")
    try:
        text, signature = file.read_text(), signed.read_text()
        parse_signature(signature)
        change = parse_change(text)
    except OSError as error:
        raise Refused(
            f"nothing was sent: {describe_reason(error)}; `minisign -Sm {file}` signs it"
        ) from None
    except (NotSigned, NotAChange, UnicodeDecodeError) as wrong:
        raise Refused(f"nothing was sent: {file} or its signature: {wrong}") from None
    if change.kit != kit.kit:
        raise Refused(
            f"the file is for {change.device}, or for an earlier hub-token: write a new file"
        )
    if change.number <= kit.last:
        raise Refused(
            "this file, or a later one, was already sent, and a kit accepts each file "
            "once: write a new file"
        )
    kit_report.offer_settings(db, kit.device, change, signature, now)
    names = ", ".join(name for name, _ in change.pairs)
    text = f"{kit.device}: {names}"
    audit.write_line(db, kit.workspace, audit.ADMINISTRATION, "device set", text, now)
    return change
