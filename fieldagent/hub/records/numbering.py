"""Numbers of items on their way to devices, each used only once.

A database restored from a copy would reuse the numbers that it used after the copy was made. A
confirmation contains the digest of its item, so it cannot end another item. The hub also skips
numbers after a restore, so that logs are unambiguous.
"""

from __future__ import annotations

import logging

from fieldagent.hub.records import rebuild
from fieldagent.hub.records.audit import ADMINISTRATION, HUB, write_line
from fieldagent.hub.store.contract import Db

log = logging.getLogger(__name__)

SKIPPED_NUMBERS = 10_000
"""Numbers to skip: more than a device gets between two backups, and still within 3 bytes."""

LOG_INTERVAL_S = 3600.0
"""Shortest time in seconds between two skips for one device. Each skip is logged."""


def leave_out(db: Db, now: float) -> int:
    """Skip numbers of every device, because the database was restored. No device gets a number that
    the hub may have used after the copy was made. The hub sends each device all names again, and
    asks it for its kept items. Return the number of devices.
    """
    devices = db.execute(
        "UPDATE device SET next_sequence = next_sequence + ? RETURNING id", SKIPPED_NUMBERS
    )
    db.execute("DELETE FROM introduced")
    rebuild.begin(db, now)
    write_line(
        db,
        None,
        ADMINISTRATION,
        "restored",
        f"{SKIPPED_NUMBERS} numbers of each device left out",
        now,
    )
    return len(devices)


def leave_out_of(db: Db, device: int, now: float) -> bool:
    """Skip numbers of this device only. Return False if they were skipped within the last hour.

    A device's report proves nothing about the database, so other devices keep their numbers.
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
    this number. Ask the device for its kept items. Return True if numbers were skipped, which
    happens at most once an hour.
    """
    ((following,),) = db.execute("SELECT next_sequence FROM device WHERE id = ?", device)
    if not following - SKIPPED_NUMBERS <= sequence < following + SKIPPED_NUMBERS:
        return False
    if not leave_out_of(db, device, now):
        return False
    if db.execute("SELECT 1 FROM device WHERE id = ? AND link_token IS NOT NULL", device):
        rebuild.begin_one(db, device, b"", now)
    log.error(
        "device %d confirms a number that this database has not given to it: %d numbers are left"
        " out for it. If the database was restored from an older copy, run `fieldagent hub"
        " database restored`",
        device,
        SKIPPED_NUMBERS,
    )
    return True
