"""`fieldagent hub device dead-letter`: messages from the field that the hub could not use."""

from __future__ import annotations

import argparse
import base64
import time
from collections.abc import Callable, Sequence

from fieldagent.cli.hub.opened_store import once, show, show_list, with_store
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Row
from fieldagent.hub.contract import Device
from fieldagent.hub.field import dead_letters, kept_letters
from fieldagent.hub.field.mobile_originated import MobileOriginated
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.tracker import by_kit


def taking_dead_letters(
    arguments: argparse.Namespace, change: Callable[[Db, float], tuple[Sequence[int], Row]]
) -> int:
    """Run `change` on devices and process their dead letters, in one transaction. `change` returns
    the devices' numbers, and the members to show.
    """

    def carry_out(settings: HubSettings, store: Store) -> int:
        taking = _mobile_originated(settings, store)

        def both(db: Db) -> Row:
            devices, text = change(db, time.time())
            for device in devices:
                dead_letters.assign(db, device)
            if taken := kept_letters.take_in(db, taking, devices):
                text["deadLettersTaken"] = taken
            return text

        return show(arguments, store.once(both), secret_names=("hub-token", "satellite-key"))

    return with_store(arguments, carry_out)


def _mobile_originated(settings: HubSettings, store: Store) -> MobileOriginated:
    async def keys(device: Device) -> Sequence[bytes]:
        return await store.read(lambda db: directory.mo_keys_of(db, device.id))

    return MobileOriginated(
        store,
        clock=time.time,
        keys=keys,
        grace=settings.satellite_grace,
        time_to_live=settings.item_time_to_live,
        take_tracker=by_kit.take_in,
    )


def dead_letter_list(arguments: argparse.Namespace) -> int:
    """List the dead letters of all workspaces, with the content as text if possible; with --json as
    base64.
    """

    def rows(db: Db, now: float) -> int:
        listed = dead_letters.listing(db)
        if not arguments.json:
            for row in listed:
                row["payload"] = _as_text(row["payload"])
        return show_list(arguments, listed)

    return once(arguments, rows)


def _as_text(payload: str) -> str:
    """Return the beginning of a message, as text if possible."""
    body = base64.b64decode(payload)
    text = body.decode("ascii", "replace")
    return (text if text.isprintable() and "\ufffd" not in text else f"hex {body.hex()}")[:40]


def dead_letter_replay(arguments: argparse.Namespace) -> int:
    """Process the dead letters of all devices that are usable now, and print their number."""

    def all_of_them(settings: HubSettings, store: Store) -> int:
        taking = _mobile_originated(settings, store)
        taken = store.once(
            lambda db: kept_letters.take_in(db, taking, dead_letters.devices_with(db))
        )
        return show(arguments, {"deadLettersTaken": taken})

    return with_store(arguments, all_of_them)


def dead_letter_assign(arguments: argparse.Namespace) -> int:
    """Assign the dead letters with a device's IMEI to the device, and process them."""

    def find(db: Db, now: float) -> tuple[list[int], Row]:
        workspace = directory.workspace_of(db, arguments.workspace)
        device = directory.device_named(db, workspace, arguments.device)
        return [device], {"id": device}

    return taking_dead_letters(arguments, find)


def dead_letter_remove(arguments: argparse.Namespace) -> int:
    """Remove a dead letter permanently, by its number. Refused if it does not exist."""

    def drop(db: Db, now: float) -> int:
        dead_letters.discard(db, arguments.id, now=now)
        return show(arguments, {"id": arguments.id, "removed": True})

    return once(arguments, drop)
