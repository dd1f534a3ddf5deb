"""The numbers that items have on their way to devices: each is given once.

A database that was restored from a copy would give again those that it gave after the copy was
made. A confirmation bears its item's digest and so ends no other item; the numbers are kept apart
as well, so that a log tells them apart.
"""

from __future__ import annotations

import logging

from fieldagent.hub.records import rebuild
from fieldagent.hub.records.audit import ADMINISTRATION, note
from fieldagent.hub.store.contract import Db

log = logging.getLogger(__name__)

JUMP = 10_000
"""Numbers that are left out: more than a device gets between two backups, and in 3 bytes still."""

ONCE_IN = 3600.0
"""Seconds."""


def leave_out(db: Db, now: float) -> int:
    """Leave numbers out, as the database was restored: no device gets a number that may have been
    given since the copy, each hears names anew, and is asked for what it still has; how many
    devices there are."""
    devices = db.execute("UPDATE device SET next_sequence = next_sequence + ? RETURNING id", JUMP)
    db.execute("DELETE FROM introduced")
    rebuild.begin(db, now)
    note(db, None, ADMINISTRATION, "restored", f"{JUMP} numbers of each device left out", now)
    return len(devices)


def leave_out_once(db: Db, now: float) -> int:
    """Do as `leave_out` does, once an hour, whatever devices say; 0 where that was done."""
    if db.execute("SELECT 1 FROM audit WHERE action = 'restored' AND at > ?", now - ONCE_IN):
        return 0
    return leave_out(db, now)


def suspect(db: Db, device: int, sequence: int, now: float) -> bool:
    """Suspect a restored database: a device that has proved who it is confirms what the hub never
    sent under this number. Whether that shows a restored database; it does so once an hour,
    whatever devices say."""
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
