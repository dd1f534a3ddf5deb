"""Writes a new, intact journal beside a damaged one. An extension copies the content that can be
saved.

The damaged journal is only read. `files` renames the new journal once it is complete. If power
fails, the next start repeats the repair or finishes the renaming.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from fieldagent.agent.journal import elapsed_base, losses
from fieldagent.agent.journal.high_water import HighWater, raise_numbers
from fieldagent.agent.journal.schema import JOURNAL
from fieldagent.extensions import list_places
from fieldagent.store.sqlite import connect, open_reader
from fieldagent.system.extension import import_own
from fieldagent.system.lazy_named_tuple import NamedTuple

log = logging.getLogger(__name__)


class RepairResult(NamedTuple):
    """Result of a repair: a text for people, and the numbers of lost Packages and payloads."""

    text: str
    """A sentence about the saved and the lost content, with the Packages that must be posted
    again."""
    packages_lost: int
    payloads_lost: int


Salvage = Callable[[Path, sqlite3.Connection, HighWater, float], RepairResult]
"""Function that copies content of the damaged journal (first argument) into an empty journal
(second argument), which is in a transaction and does not check foreign keys. The other arguments
are the highest numbers of the damaged journal, which must not be used again, and the elapsed time.
Raises sqlite3.Error, OSError."""


def write_repaired_journal(
    path: Path, new_path: Path, mark: HighWater, reason: str, old_name: str
) -> str:
    """Write the journal `new_path`, which must not exist yet, and return a text about the saved
    content.

    `mark` contains the highest numbers of the damaged journal at `path`, `reason` the damage, and
    `old_name` the name under which it will be kept. Raises sqlite3.Error, OSError.
    """
    log.error("the journal %s is damaged (%s): saving its intact entries", path, reason)
    salvage: Salvage = next(map(import_own, list_places("salvage").values()), _save_nothing)
    now = time.time() - _compute_clock_lead(path)
    with closing(connect(new_path, JOURNAL, is_checked=True)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("BEGIN IMMEDIATE")
        saved = salvage(path, connection, mark, now)
        text = (
            f"the journal was damaged ({reason}): {saved.text}."
            f" The damaged one is kept as {old_name}"
        )
        loss = losses.Loss(now, text, saved.packages_lost, saved.payloads_lost)
        losses.store_loss(connection, loss)
        connection.execute("COMMIT")
        # Without a write-ahead log all content is in this one file, which is renamed later.
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
    return saved.text


def _save_nothing(
    path: Path, connection: sqlite3.Connection, mark: HighWater, now: float
) -> RepairResult:
    if mark.package:
        # Continue after the highest number, instead of with the new journal's own random number.
        connection.execute("DELETE FROM sqlite_sequence")
    raise_numbers(connection, mark)
    # Estimate the count from the ids: the first number is random, but the first id is 1. Higher ids
    # than that exist only if callers chose them.
    packages = min(mark.package, mark.id or mark.package)
    text = (
        f"nothing could be saved; unknown: the last {packages} accepted; received payloads"
        f" that are lost: {mark.payload}. Post those again"
    )
    return RepairResult(text, packages, mark.payload)


def _compute_clock_lead(path: Path) -> float:
    """Return the seconds by which the wall clock is ahead of the time in the damaged journal, or 0
    if that time cannot be read.
    """
    with suppress(sqlite3.Error, UnicodeDecodeError), closing(open_reader(path)) as damaged:
        base = elapsed_base.read_known(damaged)
        return 0.0 if base is None else base.offset
    return 0.0
