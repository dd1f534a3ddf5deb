"""Recovery of items from kits, after the database was restored from an older backup.

After a restore, each device in use has a row in the table `rebuild`. The row is `open` until the
hub has asked the kit for all its items, first in one direction, then in the other. Each page of
items is one transaction. After a power cut, the hub continues at `place`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fieldagent.hub.records import kit_report
from fieldagent.hub.records.audit import HUB, write_line
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import format_count
from fieldagent.wire.backup_note import Direction


class Rebuild(NamedTuple):
    is_open: bool
    direction: Direction
    place: int
    listed: int
    """Number of items that the kit has listed."""
    missing: int
    """Number of listed items that the hub did not have. `back` is the number of recovered items.
    `gone` is the number of items that the kit no longer has either."""
    back: int
    gone: int
    held: bytes
    """Summary of the items that the kit had when the loss was detected."""

    @property
    def words(self) -> str:
        """Return the numbers of missing, recovered and lost items as a text for people."""
        return (
            f"{self.missing} of {format_count(self.listed + self.gone, 'item')} were missing here,"
            f" {self.back} came back, {self.gone} are no longer in its journal"
        )


_COLUMNS = "state = 'open', direction, place, listed, missing, back, gone, held"


def begin_all(db: Db, now: float) -> None:
    """Request all items from each kit that is in use and has a link token. A linked kit gets the
    request immediately.
    """
    rows = db.execute(
        "INSERT INTO rebuild (device, since, state) SELECT id, ?, 'open' FROM device"
        " WHERE disabled IS NULL AND link_token IS NOT NULL ON CONFLICT (device) DO UPDATE"
        " SET since = excluded.since, state = 'open', direction = 0, place = 0, listed = 0,"
        " missing = 0, back = 0, gone = 0, ended = NULL RETURNING device",
        now,
    )
    for (device,) in rows:
        db.announce(kit_report.get_topic(device))


def begin_recovery(db: Db, device: int, summary: bytes, now: float) -> None:
    """Begin the recovery of items from one kit. `summary` contains the items that the kit
    reports.
    """
    db.execute(
        "INSERT INTO rebuild (device, since, state, held) VALUES (?, ?, 'open', ?)"
        " ON CONFLICT (device) DO UPDATE SET held = excluded.held, since = CASE rebuild.state"
        " WHEN 'open' THEN rebuild.since ELSE excluded.since END, state = 'open',"
        " direction = 0, place = 0, listed = 0, missing = 0, back = 0, gone = 0, ended = NULL",
        *(device, now, summary),
    )
    db.announce(kit_report.get_topic(device))


def read_progress(db: Db, device: int) -> Rebuild | None:
    """Return the progress of the recovery from a kit, or None if the kit was never asked."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM rebuild WHERE device = ?", device)
    if not rows:
        return None
    is_open, direction, log_place, listed, missing, sent_back, gone, held = rows[0]
    counts = (log_place, listed, missing, sent_back, gone)
    return Rebuild(bool(is_open), Direction(direction), *counts, bytes(held or b""))


def add_listed_counts(db: Db, device: int, listed_count: int, lost_count: int) -> None:
    """Add to the numbers of a kit's recovery: `listed_count` listed items, and `lost_count` items
    that neither the kit nor the hub has.
    """
    db.execute(
        "UPDATE rebuild SET listed = listed + ?, missing = missing + ?, gone = gone + ?"
        " WHERE device = ? AND state = 'open'",
        *(listed_count, lost_count, lost_count, device),
    )


def add_copy_counts(db: Db, device: int, recovered_count: int, lost_count: int) -> None:
    """Add to the numbers of a kit's recovery: `recovered_count` recovered items, and `lost_count`
    items that the kit no longer has. Do nothing if the recovery has ended.
    """
    db.execute(
        "UPDATE rebuild SET missing = missing + ?, back = back + ?, gone = gone + ?"
        " WHERE device = ? AND state = 'open'",
        *(recovered_count + lost_count, recovered_count, lost_count, device),
    )


def store_place(db: Db, device: int, direction: Direction, place: int) -> None:
    """Store the direction and the place (`InventoryRow.place`) after which the recovery continues.
    Each item up to this place is at the hub or lost.
    """
    db.execute(
        "UPDATE rebuild SET direction = ?, place = ? WHERE device = ? AND state = 'open'",
        *(direction, place, device),
    )
    db.announce(kit_report.get_topic(device))


def finish_rebuild(db: Db, device: int, workspace: int, name: str, now: float) -> str:
    """Finish the recovery from a kit. Return the result for people, or an empty string if no item
    was missing.
    """
    db.execute("UPDATE rebuild SET state = 'done', ended = ? WHERE device = ?", now, device)
    progress = read_progress(db, device)
    if progress is None or not progress.missing:
        return ""
    progress_text = f"{name}: {progress.words}"
    write_line(db, workspace, HUB, "rebuilt", progress_text, now)
    return progress_text


SHOWN_FOR_S = 7 * 86_400.0
"""Seconds for which people see a finished recovery."""


def describe_rebuild(row: Mapping[str, Any], now: float) -> dict[str, Any] | None:
    """Return the state of a device's recovery from the columns `SHOWN_COLUMNS`. Return None if
    there is nothing to show.
    """
    state, missing = row["rebuild state"], row["rebuild missing"]
    if state is None:
        return None
    if state == "done" and (not missing or now - row["rebuild ended"] > SHOWN_FOR_S):
        return None
    return {
        "state": state,
        "missing": missing,
        "back": row["rebuild back"],
        "gone": row["rebuild gone"],
    }


SHOWN_COLUMNS = {
    f"rebuild {column}": f"(SELECT {column} FROM rebuild WHERE rebuild.device = device.id)"
    for column in ("state", "missing", "back", "gone", "ended")
}
"""SQL for the columns of a `device` that `describe_rebuild` reads."""


def count_figures(db: Db) -> dict[str, float]:
    """Return the metrics by name, summed over all kits."""
    ((waiting, missing, sent_back, gone),) = db.execute(
        "SELECT coalesce(sum(CASE WHEN state = 'open' THEN 1 ELSE 0 END), 0),"
        " coalesce(sum(missing), 0), coalesce(sum(back), 0), coalesce(sum(gone), 0) FROM rebuild"
    )
    return {
        "rebuild_kits_waiting": float(waiting),
        "rebuild_items_missing": float(missing),
        "rebuild_items_back": float(sent_back),
        "rebuild_items_gone": float(gone),
    }
