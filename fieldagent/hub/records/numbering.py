"""Numbers of items that the hub sends to devices. Each number is used only once.

If a database is restored from a backup, the hub would use the numbers again that it used after the
backup. A confirmation contains the digest of its item, so it cannot end the delivery of another
item. The hub also skips numbers after a restore, so that each number in a log means one item.
"""

from __future__ import annotations

import logging

from fieldagent.hub.records import rebuild
from fieldagent.hub.records.audit import ADMINISTRATION, HUB, write_line
from fieldagent.hub.store.contract import Db

log = logging.getLogger(__name__)

SKIPPED_NUMBERS = 10_000
"""Numbers to skip. This is more than a device gets between two backups, and the numbers still fit
in 3 bytes."""

LOG_INTERVAL_S = 3600.0
"""Seconds after a skip during which no further number of the same device is skipped. Each skip is
logged."""


def skip_all_numbers(db: Db, now: float) -> int:
    """Skip numbers of every device after a restore, and return the number of devices. No device
    gets a number that the hub may have used after the backup was made. The hub also sends each
    device the whole directory again, and asks the device for its stored items.
    """
    devices = db.execute(
        "UPDATE device SET next_sequence = next_sequence + ? RETURNING id", SKIPPED_NUMBERS
    )
    db.execute("DELETE FROM introduced")
    rebuild.begin_all(db, now)
    write_line(
        db,
        None,
        ADMINISTRATION,
        "restored",
        f"{SKIPPED_NUMBERS} numbers of each device left out",
        now,
    )
    return len(devices)


def skip_device_numbers(db: Db, device: int, now: float) -> bool:
    """Skip numbers of one device. Return False if numbers of this device were skipped within the
    last hour.

    Other devices keep their numbers, because the report of one device does not prove that the
    database was restored.
    """
    detail = f"{SKIPPED_NUMBERS} numbers of device {device} left out"
    if db.execute(
        "SELECT 1 FROM audit WHERE action = 'restored' AND detail = ? AND at > ?",
        *(detail, now - LOG_INTERVAL_S),
    ):
        return False
    ((workspace,),) = db.execute(
        "UPDATE device SET next_sequence = next_sequence + ? WHERE id = ? RETURNING workspace",
        *(SKIPPED_NUMBERS, device),
    )
    db.execute("DELETE FROM introduced WHERE device = ?", device)
    write_line(db, workspace, HUB, "restored", detail, now)
    return True


def skip_numbers(db: Db, device: int, sequence: int, now: float) -> bool:
    """Skip numbers of an authenticated device that confirms an item that the hub never sent under
    the number `sequence`. Also ask the device for its stored items. Return True if numbers were
    skipped, which happens at most once an hour. Skip none if `sequence` is more than
    SKIPPED_NUMBERS away from the next number.
    """
    ((next_number,),) = db.execute("SELECT next_sequence FROM device WHERE id = ?", device)
    if not next_number - SKIPPED_NUMBERS <= sequence < next_number + SKIPPED_NUMBERS:
        return False
    if not skip_device_numbers(db, device, now):
        return False
    if db.execute("SELECT 1 FROM device WHERE id = ? AND link_token IS NOT NULL", device):
        rebuild.begin_recovery(db, device, b"", now)
    log.error(
        "device %d confirms a number that this database has not given to it: %d numbers are left"
        " out for it. If the database was restored from an older copy, run `fieldagent hub"
        " database restored`",
        device,
        SKIPPED_NUMBERS,
    )
    return True
