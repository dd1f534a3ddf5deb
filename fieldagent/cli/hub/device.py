"""`fieldagent hub device`: agents in the field, and what a kit needs to reach the hub."""

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
"""Characters of what --json tells whole."""


def device_add(given: argparse.Namespace) -> int:
    """Add a device, and print its secrets this once or put them on a card. Where the card cannot be
    written, no device is added."""
    try:
        beside = card_files.wanted(given)
        _check_operator(given)
    except (Unfit, OSError) as wrong:
        complain(f"no device was added: {reason_of(wrong)}")
        return REFUSED

    def add(db: Db, now: float) -> tuple[list[int], Row]:
        workspace = directory.workspace_of(db, given.workspace)
        air_key = secret.new_air_key() if given.tagged else None
        new = directory.NewDevice(
            given.name,
            imei=given.imei,
            operator=given.operator,
            thing=given.thing,
            air_key=air_key,
            credits_per_day=given.credits_per_day,
            sos_reserve=given.sos_reserve,
            relay=given.relay,
        )
        member = directory.member_of(db, workspace, given.user)
        id_, token = directory.add_device(db, workspace, member, new, now=now)
        text: Row = {"id": id_, "hub-token": token}
        if air_key is not None:
            text["satellite-key"] = air_key.hex()
        if given.card is not None or given.qr:
            settings.append(_settings(given.address, text, beside.settings))
        if given.card is not None:
            text["card"] = _put_on(given.card, settings[-1], beside)
            if beside.files:
                text["cloudInit" if beside.cloud_init else "cardFiles"] = ", ".join(beside.files)
        return [id_], text

    settings: list[str] = []
    code = taking_dead_letters(given, add)
    if given.qr and code == OK and not given.json:
        show_qr_code(settings[-1])
    return code


def _check_operator(given: argparse.Namespace) -> None:
    """Raises Unfit where no operator has that name."""
    try:
        own = load(given.config, given.database).operators
    except InvalidSettings:
        return  # which is told where the database is opened
    if given.operator is not None and given.operator not in operators(own):
        raise Unfit(f"there is no operator {given.operator!r}: {', '.join(operators(own))}")


def _settings(address: str | None, told: Row, more: list[tuple[str, str]]) -> str:
    """Return the settings of its kit."""
    if address is None:
        raise Refused("--address is missing: the https:// address that the kit calls")
    secrets = [(name, str(told[name])) for name in ("hub-token", "satellite-key") if name in told]
    try:
        return card_text([("hub-address", address), *more, *secrets])
    except InvalidSettings as wrong:
        raise Refused("; ".join(wrong.faults)) from None


def _put_on(folder: Path, settings: str, beside: CardFiles) -> str:
    """Within the transaction: a device whose card could not be written is not there either."""
    try:
        card_files.write(folder, beside)
        return str(write_card(folder, settings))
    except OSError as error:
        raise Refused(f"the card cannot be written: {reason_of(error)}") from None


def device_retry(given: argparse.Namespace) -> int:
    """Let all that waits to be called in to a device's satellite operator go at once, and print how
    many messages that are."""

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        device = directory.device_named(db, workspace, given.device)
        return show(given, {"id": device, "messages": operator_trouble.call_again(db, device)})

    return once(given, change)


def device_contested(given: argparse.Namespace) -> int:
    """List the IMEIs that a device claims which another has, in all workspaces."""
    return once(given, lambda db, now: show_list(given, imei_claims.listing(db)))


def device_imei(given: argparse.Namespace) -> int:
    """Set a device's IMEI, and take in the dead letters that have it. --take takes it from another
    device first."""

    def change(db: Db, now: float) -> tuple[list[int], Row]:
        device = directory.device_named(
            db, directory.workspace_of(db, given.workspace), given.device
        )
        if given.take:
            imeis.take_imei(db, given.imei, device, now=now)
        imeis.set_imei(db, device, given.imei, now=now)
        return [device], {"id": device, "imei": given.imei}

    return taking_dead_letters(given, change)


def device_rename(given: argparse.Namespace) -> int:
    """Rename a device. Refused where another of its workspace has the name."""

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        device = directory.device_named(db, workspace, given.device)
        directory.rename_device(db, device, given.name, now=now)
        return show(given, {"id": device, "name": given.name})

    return once(given, change)


def device_key(given: argparse.Namespace) -> int:
    """Set a new key, or the one that the kit has (read, never an argument), or remove it."""
    key = (
        None if given.remove else ask_key("satellite-key") if given.given else secret.new_air_key()
    )

    def change(db: Db, now: float) -> tuple[list[int], Row]:
        device = directory.device_named(
            db, directory.workspace_of(db, given.workspace), given.device
        )
        directory.set_air_key(db, device, key, now=now)
        text: Row = {"id": device, "tagged": key is not None}
        if key is not None and not given.given:
            text["satellite-key"] = key.hex()
        return [device], text

    return taking_dead_letters(given, change)


def device_token(given: argparse.Namespace) -> int:
    """Print a new link token, the only time; the kit's link by the old one ends."""

    def renew(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        device = directory.device_named(db, workspace, given.device)
        token = directory.new_link_token(db, device, now=now)
        return show(given, {"id": device, "hub-token": token}, secret_names=("hub-token",))

    return once(given, renew)


def device_relay(given: argparse.Namespace) -> int:
    """Let a kit bring what others of its workspace sent, or with --off no more, and take in what it
    brought before."""

    def change(db: Db, now: float) -> tuple[list[int], Row]:
        workspace = directory.workspace_of(db, given.workspace)
        device = directory.device_named(db, workspace, given.device)
        directory.set_relay(db, device, not given.off, now=now)
        return [device], {"id": device, "relay": not given.off}

    return taking_dead_letters(given, change)


def device_revoke(given: argparse.Namespace) -> int:
    """Revoke a device whose kit may be in wrong hands: of it an SOS alone counts. --new-radio-key
    gives the others another radio-key, too."""
    if given.new_radio_key:
        return radio_key.revoke_and_change(given)

    def change(db: Db, now: float) -> int:
        if given.but or given.key_given or given.by or given.yes:
            raise Refused("--but, --key-given, --by and --yes go with --new-radio-key")
        workspace = directory.workspace_of(db, given.workspace)
        device = directory.device_named(db, workspace, given.device)
        revocation.revoke(db, device, given.why, now=now)
        return show(given, {"id": device, "revoked": True})

    return once(given, change)


def device_restore(given: argparse.Namespace) -> int:
    """Take a revocation back, and take in what came meanwhile, also by others."""

    def change(db: Db, now: float) -> tuple[list[int], Row]:
        workspace = directory.workspace_of(db, given.workspace)
        device = directory.device_named(db, workspace, given.device)
        revocation.restore(db, device, now=now)
        # Others may have brought what it sent.
        return dead_letters.devices_with(db, workspace), {"id": device, "revoked": False}

    return taking_dead_letters(given, change)


def device_list(given: argparse.Namespace) -> int:
    """List the devices of a workspace, each with how it stands; with --json its settings and last
    update whole."""

    def rows(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        listed = directory.devices(db, workspace, now)
        steps = key_change.of_devices(db, workspace)
        for row in listed:
            row["radioKey"] = steps.get(row["id"])
        if not given.json:
            for row in listed:
                row |= {name: _in_short(row[name]) for name in ("lastUpdate", "settings")}
        return show_list(given, listed)

    return once(given, rows)


def _in_short(text: str | None) -> str | None:
    if text is None or len(text) <= REASON_SHOWN:
        return text
    return f"{text[:REASON_SHOWN]} …"


def disable(given: argparse.Namespace) -> int:
    """Disable a user or device, or with --enable enable it, and take in what its devices sent
    meanwhile."""

    def change(db: Db, now: float) -> tuple[list[int], Row]:
        workspace = directory.workspace_of(db, given.workspace)
        find = directory.member_of if given.what == "member" else directory.device_named
        id_ = find(db, workspace, given.named)
        when = None if given.enable else now
        devices = directory.set_disabled(db, given.what, id_, when, now=now)
        return devices, {"id": id_, "disabled": not given.enable}

    return taking_dead_letters(given, change)
