"""Numbers of items on their way to devices, each used only once.

A database restored from a copy would reuse the numbers that it used after the copy was made. A
confirmation contains the digest of its item, so it cannot end another item. The numbers are kept
apart as well, so that logs are unambiguous.
"""

from __future__ import annotations

import logging

from fieldagent.hub.records import rebuild
from fieldagent.hub.records.audit import ADMINISTRATION, note
from fieldagent.hub.store.contract import Db

log = logging.getLogger(__name__)

JUMP = 10_000
"""Numbers to skip: more than a device gets between two backups, and still within 3 bytes."""

ONCE_IN = 3600.0
"""Seconds."""


def leave_out(db: Db, now: float) -> int:
    """Skip numbers after a restore and return the number of devices.

    No device then gets a number that may have been used since the copy. Each device gets its
    introductions again, and is asked for the items that it still has.
    """
    devices = db.execute("UPDATE device SET next_sequence = next_sequence + ? RETURNING id", JUMP)
    db.execute("DELETE FROM introduced")
    rebuild.begin(db, now)
    note(db, None, ADMINISTRATION, "restored", f"{JUMP} numbers of each device left out", now)
    return len(devices)


def leave_out_once(db: Db, now: float) -> int:
    """Like `leave_out`, but at most once per hour, whatever devices send. Return 0 if it was done
    before.
    """
    if db.execute("SELECT 1 FROM audit WHERE action = 'restored' AND at > ?", now - ONCE_IN):
        return 0
    return leave_out(db, now)


def suspect(db: Db, device: int, sequence: int, now: float) -> bool:
    """Check if the database was restored: an authenticated device confirms an item that the hub
    never sent under this number. Return True if numbers were skipped, at most once per hour.
    """
    ((following,),) = db.execute("SELECT next_sequence FROM device WHERE id = ?", device)
    if not following - JUMP <= sequence < following + JUMP:
        return False
    count = leave_out_once(db, now)
    if not count:
        return False
    log.error(
        "device %d confirms a number that this database has not given to it: it was restored from"
        " an older copy; %d numbers are left out for each of %d devices, and nothing else is to do",
        device,
        JUMP,
        count,
    )
    return True
