"""`fieldagent hub device add`: a new device, and what its kit needs to reach the hub."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from fieldagent.cli import cloud_init
from fieldagent.cli.ask_password import ask_password
from fieldagent.cli.cloud_init import Unfit
from fieldagent.cli.exit_codes import OK, REFUSED
from fieldagent.cli.hub import taking_dead_letters
from fieldagent.cli.log_lines import complain
from fieldagent.cli.provision import card_text, write_card
from fieldagent.cli.qr_code import show_qr_code
from fieldagent.cli.terminal import escaped
from fieldagent.hub import directory, secret
from fieldagent.hub.directory import Refused, Row
from fieldagent.hub.store.contract import Db
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.wording import reason_of


def device_add(given: argparse.Namespace) -> int:
    try:
        beside = _beside(given)
    except (Unfit, OSError) as wrong:
        complain(f"no device was added: {reason_of(wrong)}")
        return REFUSED

    def add(db: Db, now: float) -> tuple[list[int], Row]:
        workspace = directory.workspace_of(db, given.workspace)
        air_key = secret.new_air_key() if given.tagged else None
        id_, token = directory.add_device(
            db,
            workspace,
            directory.member_of(db, workspace, given.user),
            given.name,
            imei=given.imei,
            operator=given.operator,
            air_key=air_key,
            credits_per_day=given.credits_per_day,
            sos_reserve=given.sos_reserve,
            relay=given.relay,
            now=now,
        )
        text: Row = {"id": id_, "hub-token": token}
        if air_key is not None:
            text["satellite-key"] = air_key.hex()
        if given.card is not None or given.qr:
            settings.append(_settings(given.address, text))
        if given.card is not None:
            text["card"] = _put_on(given.card, settings[-1], beside)
            if beside:
                text["cloudInit"] = ", ".join(beside)
        return [id_], text

    settings: list[str] = []
    code = taking_dead_letters(given, add)
    if given.qr and code == OK and not given.json:
        show_qr_code(settings[-1])
    return code


def _settings(address: str | None, told: Row) -> str:
    """Of its kit."""
    if address is None:
        raise Refused("--address is missing: the https:// address that the kit calls")
    secrets = [(name, str(told[name])) for name in ("hub-token", "satellite-key") if name in told]
    try:
        return card_text([("hub-address", address), *secrets])
    except InvalidSettings as wrong:
        raise Refused("; ".join(wrong.faults)) from None


def _beside(given: argparse.Namespace) -> Mapping[str, str]:
    """cloud-init's files, where they are wished for. Raises Unfit, OSError."""
    if not (given.hostname or given.ssh_key or given.wifi):
        return {}
    if given.card is None:
        raise Unfit("--card is missing: the card's boot partition, for cloud-init's files")
    keys = [key for file in given.ssh_key for key in cloud_init.public_keys(file)]
    user = cloud_init.user_data(given.hostname or given.name, given.login, keys)
    network = None
    if given.wifi:
        password = ask_password(f"Password of {escaped(given.wifi)}, empty for an open Wi-Fi")
        network = cloud_init.network_config(given.wifi, password, given.country)
    return cloud_init.texts(user, network)


def _put_on(folder: Path, settings: str, beside: Mapping[str, str]) -> str:
    """Within the transaction: a device whose card could not be written is not there either."""
    try:
        cloud_init.write(folder, beside)
        return str(write_card(folder, settings))
    except OSError as error:
        raise Refused(f"the card cannot be written: {reason_of(error)}") from None
