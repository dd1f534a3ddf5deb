"""`fieldagent hub device`: agents in the field, and the settings with which a kit reaches
the hub.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fieldagent.cli.ask_key import ask_key
from fieldagent.cli.hub import card_files, radio_key
from fieldagent.cli.hub.card_files import CardFiles
from fieldagent.cli.hub.dead_letters import make_dead_letter_change
from fieldagent.cli.hub.opened_store import Call, Result, make_transaction
from fieldagent.cli.qr_code import show_qr_code
from fieldagent.hub.access import directory, imei_claims, imeis, revocation, secret
from fieldagent.hub.access.directory import Refused, Row
from fieldagent.hub.field import dead_letters
from fieldagent.hub.field import radio_key as key_change
from fieldagent.hub.operator.registry import get_operators
from fieldagent.hub.records import operator_trouble
from fieldagent.hub.settings import load_settings
from fieldagent.kit.cloud_init import UnfitValue
from fieldagent.kit.provision import read_card_text, write_card
from fieldagent.system.exit_codes import OK, REFUSED
from fieldagent.system.log_lines import print_failure
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.wording import describe_reason

REASON_CHARACTERS_MAX = 60
"""Maximum number of characters of a reason in the table. --json contains the whole reason."""


def add_device(arguments: argparse.Namespace) -> int:
    """Add a device, and print its secrets once or write them to a card. If the card cannot be
    written, no device is added.
    """
    try:
        card_files_made = card_files.make_card_files(arguments)
        _check_operator(arguments)
    except (UnfitValue, OSError) as wrong:
        print_failure(f"no device was added: {describe_reason(wrong)}")
        return REFUSED

    @make_dead_letter_change
    def add(call: Call) -> tuple[list[int], Row]:
        air_key = secret.make_air_key() if arguments.tagged else None
        new = directory.NewDevice(
            arguments.name,
            imei=arguments.imei,
            operator=arguments.operator,
            thing=arguments.thing,
            air_key=air_key,
            credits_per_day=arguments.credits_per_day,
            sos_reserve=arguments.sos_reserve,
            relay=arguments.relay,
        )
        id_, token = directory.add_device(*call.here, call.member, new, now=call.now)
        text: Row = {"id": id_, "hub-token": token}
        if air_key is not None:
            text["satellite-key"] = air_key.hex()
        if arguments.card is not None or arguments.qr:
            settings.append(_format_settings(arguments.address, text, card_files_made.settings))
        if arguments.card is not None:
            text["card"] = _write_card(arguments.card, settings[-1], card_files_made)
            if card_files_made.files:
                text["cloudInit" if card_files_made.cloud_init else "cardFiles"] = ", ".join(
                    card_files_made.files
                )
        return [id_], text

    settings: list[str] = []
    code = add(arguments)
    if arguments.qr and code == OK and not arguments.json:
        show_qr_code(settings[-1])
    return code


def _check_operator(arguments: argparse.Namespace) -> None:
    """Check the operator's name. Raises UnfitValue if the name is unknown."""
    try:
        own = load_settings(arguments.config, arguments.database).operators
    except InvalidSettings:
        return  # The command opens the database later and reports the fault.
    if arguments.operator is not None and arguments.operator not in get_operators(own):
        raise UnfitValue(
            f"unknown operator {arguments.operator!r}: use {', '.join(get_operators(own))}"
        )


def _format_settings(address: str | None, row: Row, more: list[tuple[str, str]]) -> str:
    """Return the text of the settings file with which the device's kit reaches the hub. Raises
    Refused if `address` is None or a setting is invalid.
    """
    if address is None:
        raise Refused("--address is missing: the https:// address that the kit calls")
    secrets = [(name, str(row[name])) for name in ("hub-token", "satellite-key") if name in row]
    try:
        return read_card_text([("hub-address", address), *more, *secrets])
    except InvalidSettings as wrong:
        raise Refused("; ".join(wrong.faults)) from None


def _write_card(folder: Path, settings: str, files: CardFiles) -> str:
    """Write the card within the transaction, so that the device is not added if writing fails."""
    try:
        card_files.write(folder, files)
        return str(write_card(folder, settings))
    except OSError as error:
        raise Refused(f"the card cannot be written: {describe_reason(error)}") from None


@make_transaction
def retry_device(call: Call) -> Result:
    """Retry all waiting requests to a device's satellite operator immediately, and print the number
    of messages.
    """
    return {"id": call.device, "messages": operator_trouble.call_again(call.db, call.device)}


@make_transaction
def list_contested(call: Call) -> Result:
    """List the contested IMEIs of all workspaces: a device claims the IMEI, but another device has
    it.
    """
    return imei_claims.list_claims(call.db)


@make_dead_letter_change
def set_device_imei(call: Call) -> tuple[list[int], Row]:
    """Set a device's IMEI, and process the dead letters with this IMEI. If --take is set, first
    remove the IMEI from another device.
    """
    imei, device = call.arguments.imei, call.device
    if call.arguments.take:
        imeis.reassign_imei(call.db, imei, device, now=call.now)
    imeis.set_imei(call.db, device, imei, now=call.now)
    return [device], {"id": device, "imei": imei}


@make_transaction
def rename_device(call: Call) -> Result:
    """Rename a device. Raises Refused if another device of its workspace has the name."""
    directory.rename_device(call.db, call.device, call.arguments.name, now=call.now)
    return {"id": call.device, "name": call.arguments.name}


def set_device_key(arguments: argparse.Namespace) -> int:
    """Set a new key, or the kit's existing key (read from input, never an argument), or remove the
    key.
    """
    key = (
        None
        if arguments.remove
        else ask_key("satellite-key")
        if arguments.given
        else secret.make_air_key()
    )

    @make_dead_letter_change
    def change(call: Call) -> tuple[list[int], Row]:
        directory.set_air_key(call.db, call.device, key, now=call.now)
        text: Row = {"id": call.device, "tagged": key is not None}
        if key is not None and not arguments.given:
            text["satellite-key"] = key.hex()
        return [call.device], text

    return change(arguments)


@make_transaction
def make_device_token(call: Call) -> Result:
    """Print a new link token once. The kit's link with the old token ends."""
    token = directory.make_link_token(call.db, call.device, now=call.now)
    return {"id": call.device, "hub-token": token}


@make_dead_letter_change
def set_device_relay(call: Call) -> tuple[list[int], Row]:
    """Allow a kit to relay items of other kits in its workspace, and process the items that it
    relayed before. If --off is set, forbid relaying.
    """
    relays = not call.arguments.off
    directory.set_relay(call.db, call.device, relays, now=call.now)
    return [call.device], {"id": call.device, "relay": relays}


def revoke_device(arguments: argparse.Namespace) -> int:
    """Revoke a device whose kit may be stolen: only an SOS from it is accepted. If --new-radio-key
    is set, the other kits also get a new radio key.
    """
    return (radio_key.revoke_and_change if arguments.new_radio_key else _revoke)(arguments)


@make_transaction
def _revoke(call: Call) -> Result:
    arguments = call.arguments
    if arguments.but or arguments.key_given or arguments.by or arguments.yes:
        raise Refused("--but, --key-given, --by and --yes need --new-radio-key")
    revocation.revoke(call.db, call.device, arguments.why, now=call.now)
    return {"id": call.device, "revoked": True}


@make_dead_letter_change
def restore_device(call: Call) -> tuple[list[int], Row]:
    """Undo a revocation, and process the items that arrived during it, including items that other
    kits relayed.
    """
    revocation.restore(call.db, call.device, now=call.now)
    # Other kits may have relayed items of this device.
    return dead_letters.list_devices_with_letters(*call.here), {"id": call.device, "revoked": False}


@make_transaction
def list_devices(call: Call) -> Result:
    """List the devices of a workspace and their states. If --json is set, include their settings
    and last update.
    """
    devices = directory.list_devices(*call.here, call.now)
    steps = key_change.describe_steps(*call.here)
    for row in devices:
        row["radioKey"] = steps.get(row["id"])
        if not call.arguments.json:
            row |= {name: _format_short(row[name]) for name in ("lastUpdate", "settings")}
    return devices


def _format_short(text: str | None) -> str | None:
    if text is None or len(text) <= REASON_CHARACTERS_MAX:
        return text
    return f"{text[:REASON_CHARACTERS_MAX]} …"


@make_dead_letter_change
def disable(call: Call) -> tuple[Sequence[int], Row]:
    """Disable a user and the user's devices, or a single device."""
    return _set_disabled(call, call.now)


@make_dead_letter_change
def enable(call: Call) -> tuple[Sequence[int], Row]:
    """Enable a user or device, and process the items that its devices sent while it was
    disabled.
    """
    return _set_disabled(call, None)


def _set_disabled(call: Call, when: float | None) -> tuple[Sequence[int], Row]:
    word = call.arguments.what
    find = directory.find_member if word == "member" else directory.find_device_named
    id_ = find(*call.here, call.arguments.named)
    devices = directory.set_disabled(call.db, word, id_, when, now=call.now)
    return devices, {"id": id_, "disabled": when is not None}
