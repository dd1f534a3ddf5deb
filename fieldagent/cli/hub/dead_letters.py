"""`fieldagent hub device dead-letter`: messages from the field that the hub could not use."""

from __future__ import annotations

import argparse
import base64
import time
from collections.abc import Callable, Sequence

from fieldagent.cli.hub.opened_store import Call, Result, make_store_command, make_transaction
from fieldagent.hub.access import device_keys
from fieldagent.hub.access.directory import Row
from fieldagent.hub.contract import Device
from fieldagent.hub.field import dead_letters, kept_letters
from fieldagent.hub.field.mobile_originated import MobileOriginatedReceiver
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store


def make_dead_letter_change(
    change: Callable[[Call], tuple[Sequence[int], Row]],
) -> Callable[[argparse.Namespace], int]:
    """Return the function of a command that runs `change` on devices and processes their dead
    letters, in one transaction. `change` returns the devices' numbers, and the members to show.
    """

    @make_store_command
    def carry_out(arguments: argparse.Namespace, settings: HubSettings, store: Store) -> Result:
        taking = _make_originated(settings, store)

        def change_both(db: Db) -> Row:
            devices, text = change(Call(arguments, db, time.time()))
            for device in devices:
                dead_letters.assign_letters(db, device)
            if accepted_count := kept_letters.accept_letters(db, taking, devices):
                text["deadLettersTaken"] = accepted_count
            return text

        return store.run_once(change_both)

    return carry_out


def _make_originated(settings: HubSettings, store: Store) -> MobileOriginatedReceiver:
    async def list_keys(device: Device) -> Sequence[bytes]:
        return await store.read(lambda db: device_keys.read_mo_keys(db, device.id))

    return MobileOriginatedReceiver(
        store,
        clock=time.time,
        keys=list_keys,
        grace=settings.satellite_grace,
        time_to_live=settings.item_time_to_live,
    )


@make_transaction
def list_letters(call: Call) -> Result:
    """List the dead letters of all workspaces, with the content as text if possible; with --json as
    base64.
    """
    letters = dead_letters.list_letters(call.db)
    if not call.arguments.json:
        for row in letters:
            row["payload"] = _decode_text(row["payload"])
    return letters


def _decode_text(payload: str) -> str:
    """Return the first part of a message, as text if possible."""
    body = base64.b64decode(payload)
    text = body.decode("ascii", "replace")
    return (text if text.isprintable() and "\ufffd" not in text else f"hex {body.hex()}")[:40]


@make_store_command
def replay(arguments: argparse.Namespace, settings: HubSettings, store: Store) -> Result:
    """Process the dead letters of all devices that are usable now, and print their number."""
    taking = _make_originated(settings, store)
    replayed = store.run_once(
        lambda db: kept_letters.accept_letters(
            db, taking, dead_letters.list_devices_with_letters(db)
        )
    )
    return {"deadLettersTaken": replayed}


@make_dead_letter_change
def assign(call: Call) -> tuple[list[int], Row]:
    """Assign the dead letters with a device's IMEI to the device, and process them."""
    return [call.device], {"id": call.device}


@make_transaction
def remove(call: Call) -> Result:
    """Permanently remove the dead letter with the given number. Raises Refused if there is no such
    dead letter.
    """
    dead_letters.discard_letter(call.db, call.arguments.id, now=call.now)
    return {"id": call.arguments.id, "removed": True}
