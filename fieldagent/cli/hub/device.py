"""`fieldagent hub device`: agents in the field, and the settings with which a kit reaches
the hub.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fieldagent.cli.ask_key import ask_key
from fieldagent.cli.hub import card_files, radio_key
from fieldagent.cli.hub.card_files import CardFiles
from fieldagent.cli.hub.dead_letters import taking_dead_letters
from fieldagent.cli.hub.opened_store import once, show, show_list
from fieldagent.cli.qr_code import show_qr_code
from fieldagent.hub.access import directory, imei_claims, imeis, revocation, secret
from fieldagent.hub.access.directory import Refused, Row
from fieldagent.hub.field import dead_letters
from fieldagent.hub.field import radio_key as key_change
from fieldagent.hub.operator.known import operators
from fieldagent.hub.records import operator_trouble
from fieldagent.hub.settings import load
from fieldagent.hub.store.contract import Db
from fieldagent.kit.cloud_init import Unfit
from fieldagent.kit.provision import card_text, write_card
from fieldagent.system.exit_codes import OK, REFUSED
from fieldagent.system.log_lines import complain
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.wording import reason_of

REASON_SHOWN = 60
"""Maximum characters of a reason in the table; --json has all of it."""


def device_add(arguments: argparse.Namespace) -> int:
    """Add a device, and print its secrets, only this time, or write them to a card. If the card
    cannot be written, no device is added.
    """
    try:
        beside = card_files.wanted(arguments)
        _check_operator(arguments)
    except (Unfit, OSError) as wrong:
        complain(f"no device was added: {reason_of(wrong)}")
        return REFUSED

    def add(db: Db, now: float) -> tuple[list[int], Row]:
        workspace = directory.workspace_of(db, arguments.workspace)
        air_key = secret.new_air_key() if arguments.tagged else None
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
        member = directory.member_of(db, workspace, arguments.user)
        id_, token = directory.add_device(db, workspace, member, new, now=now)
        text: Row = {"id": id_, "hub-token": token}
        if air_key is not None:
            text["satellite-key"] = air_key.hex()
        if arguments.card is not None or arguments.qr:
            settings.append(_settings(arguments.address, text, beside.settings))
        if arguments.card is not None:
            text["card"] = _put_on(arguments.card, settings[-1], beside)
            if beside.files:
                text["cloudInit" if beside.cloud_init else "cardFiles"] = ", ".join(beside.files)
        return [id_], text

    settings: list[str] = []
    code = taking_dead_letters(arguments, add)
    if arguments.qr and code == OK and not arguments.json:
        show_qr_code(settings[-1])
    return code


def _check_operator(arguments: argparse.Namespace) -> None:
    """Check the operator's name. Raises Unfit if it is unknown."""
    try:
        own = load(arguments.config, arguments.database).operators
    except InvalidSettings:
        return  # reported when the database is opened
    if arguments.operator is not None and arguments.operator not in operators(own):
        raise Unfit(f"unknown operator {arguments.operator!r}: use {', '.join(operators(own))}")


def _settings(address: str | None, row: Row, more: list[tuple[str, str]]) -> str:
    """Return the settings of the device's kit."""
    if address is None:
        raise Refused("--address is missing: the https:// address that the kit calls")
    secrets = [(name, str(row[name])) for name in ("hub-token", "satellite-key") if name in row]
    try:
        return card_text([("hub-address", address), *more, *secrets])
    except InvalidSettings as wrong:
        raise Refused("; ".join(wrong.faults)) from None


def _put_on(folder: Path, settings: str, beside: CardFiles) -> str:
    """Write the card within the transaction: if that fails, the device is not added."""
    try:
        card_files.write(folder, beside)
        return str(write_card(folder, settings))
    except OSError as error:
        raise Refused(f"the card cannot be written: {reason_of(error)}") from None


def device_retry(arguments: argparse.Namespace) -> int:
    """Retry all waiting calls to a device's satellite operator at once, and print the number of
    messages.
    """

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        device = directory.device_named(db, workspace, arguments.device)
        return show(arguments, {"id": device, "messages": operator_trouble.call_again(db, device)})

    return once(arguments, change)


def device_contested(arguments: argparse.Namespace) -> int:
    """List the IMEIs that a device claims but another device has, in all workspaces."""
    return once(arguments, lambda db, now: show_list(arguments, imei_claims.listing(db)))


def device_imei(arguments: argparse.Namespace) -> int:
    """Set a device's IMEI, and process the dead letters with it. --take first removes it from
    another device.
    """

    def change(db: Db, now: float) -> tuple[list[int], Row]:
        device = directory.device_named(
            db, directory.workspace_of(db, arguments.workspace), arguments.device
        )
        if arguments.take:
            imeis.take_imei(db, arguments.imei, device, now=now)
        imeis.set_imei(db, device, arguments.imei, now=now)
        return [device], {"id": device, "imei": arguments.imei}

    return taking_dead_letters(arguments, change)


def device_rename(arguments: argparse.Namespace) -> int:
    """Rename a device. Refused if another device of its workspace has the name."""

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        device = directory.device_named(db, workspace, arguments.device)
        directory.rename_device(db, device, arguments.name, now=now)
        return show(arguments, {"id": device, "name": arguments.name})

    return once(arguments, change)


def device_key(arguments: argparse.Namespace) -> int:
    """Set a new key, or the kit's existing one (read from input, never an argument), or
    remove it.
    """
    key = (
        None
        if arguments.remove
        else ask_key("satellite-key")
        if arguments.given
        else secret.new_air_key()
    )

    def change(db: Db, now: float) -> tuple[list[int], Row]:
        device = directory.device_named(
            db, directory.workspace_of(db, arguments.workspace), arguments.device
        )
        directory.set_air_key(db, device, key, now=now)
        text: Row = {"id": device, "tagged": key is not None}
        if key is not None and not arguments.given:
            text["satellite-key"] = key.hex()
        return [device], text

    return taking_dead_letters(arguments, change)


def device_token(arguments: argparse.Namespace) -> int:
    """Print a new link token, only this time. The kit's link with the old one ends."""

    def renew(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        device = directory.device_named(db, workspace, arguments.device)
        token = directory.new_link_token(db, device, now=now)
        return show(arguments, {"id": device, "hub-token": token}, secret_names=("hub-token",))

    return once(arguments, renew)


def device_relay(arguments: argparse.Namespace) -> int:
    """Allow a kit to relay items of its workspace's other kits, or with --off forbid it, and
    process the items that it relayed before.
    """

    def change(db: Db, now: float) -> tuple[list[int], Row]:
        workspace = directory.workspace_of(db, arguments.workspace)
        device = directory.device_named(db, workspace, arguments.device)
        directory.set_relay(db, device, not arguments.off, now=now)
        return [device], {"id": device, "relay": not arguments.off}

    return taking_dead_letters(arguments, change)


def device_revoke(arguments: argparse.Namespace) -> int:
    """Revoke a device whose kit may be stolen: only an SOS from it is accepted. With
    --new-radio-key, the other kits also get a new radio-key.
    """
    if arguments.new_radio_key:
        return radio_key.revoke_and_change(arguments)

    def change(db: Db, now: float) -> int:
        if arguments.but or arguments.key_given or arguments.by or arguments.yes:
            raise Refused("--but, --key-given, --by and --yes need --new-radio-key")
        workspace = directory.workspace_of(db, arguments.workspace)
        device = directory.device_named(db, workspace, arguments.device)
        revocation.revoke(db, device, arguments.why, now=now)
        return show(arguments, {"id": device, "revoked": True})

    return once(arguments, change)


def device_restore(arguments: argparse.Namespace) -> int:
    """Undo a revocation, and process items that arrived meanwhile, also over other kits."""

    def change(db: Db, now: float) -> tuple[list[int], Row]:
        workspace = directory.workspace_of(db, arguments.workspace)
        device = directory.device_named(db, workspace, arguments.device)
        revocation.restore(db, device, now=now)
        # Other kits may have relayed its items.
        return dead_letters.devices_with(db, workspace), {"id": device, "revoked": False}

    return taking_dead_letters(arguments, change)


def device_list(arguments: argparse.Namespace) -> int:
    """List the devices of a workspace with their states; with --json also their settings and last
    update.
    """

    def rows(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        listed = directory.devices(db, workspace, now)
        steps = key_change.of_devices(db, workspace)
        for row in listed:
            row["radioKey"] = steps.get(row["id"])
        if not arguments.json:
            for row in listed:
                row |= {name: _in_short(row[name]) for name in ("lastUpdate", "settings")}
        return show_list(arguments, listed)

    return once(arguments, rows)


def _in_short(text: str | None) -> str | None:
    if text is None or len(text) <= REASON_SHOWN:
        return text
    return f"{text[:REASON_SHOWN]} …"


def disable(arguments: argparse.Namespace) -> int:
    """Disable a user or device."""
    return _set_disabled(arguments, disabled=True)


def enable(arguments: argparse.Namespace) -> int:
    """Enable a user or device, and process the items that its devices sent meanwhile."""
    return _set_disabled(arguments, disabled=False)


def _set_disabled(arguments: argparse.Namespace, *, disabled: bool) -> int:

    def change(db: Db, now: float) -> tuple[list[int], Row]:
        workspace = directory.workspace_of(db, arguments.workspace)
        find = directory.member_of if arguments.what == "member" else directory.device_named
        id_ = find(db, workspace, arguments.named)
        when = now if disabled else None
        devices = directory.set_disabled(db, arguments.what, id_, when, now=now)
        return devices, {"id": id_, "disabled": disabled}

    return taking_dead_letters(arguments, change)
