"""Stores the losses that damage to the journal has caused, so that the status can show them for a
long time.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from fieldagent.package.package import Status
from fieldagent.system.lazy_named_tuple import NamedTuple

log = logging.getLogger(__name__)


@lru_cache(maxsize=1_000)
def report_unreadable(row_name: str, name: str) -> None:
    """Log that a stored row cannot be read. Each row is logged only once."""
    log.error("%s %s in the journal cannot be read: lists leave it out", row_name, name)


def read_status(text: str | None) -> Status | None:
    """Return the status in a stored text. If the text is not a status, return Error, so that a list
    can still show the row.
    """
    try:
        return None if text is None else Status(text)
    except ValueError:
        report_unreadable("status", repr(text))
        return Status.ERROR


Note = Callable[[sqlite3.Connection], None]


class Loss(NamedTuple):
    at: float
    text: str
    packages: int = 0
    """Number of Packages that ended, or are unknown, because of the damage."""
    payloads: int = 0


def store_loss(db: sqlite3.Connection, loss: Loss) -> None:
    """Store a loss. `fieldagent status` and the page show it."""
    db.execute("INSERT INTO loss (at, text, packages, payloads) VALUES (?, ?, ?, ?)", loss)


def record_damage(sequence: int, id_: int | None, at: float) -> Note:
    """Return the operation that records the loss of a Package whose row is damaged. The row is kept
    for inspection.
    """
    package_name = f"number {sequence}" if id_ is None else str(id_)
    text = f"Package {package_name} is damaged on the disk and was not sent: post it again"

    def store(db: sqlite3.Connection) -> None:
        store_loss(db, Loss(at, text, packages=1))

    return store


def list_newest(read: Callable[..., list[Any]], limit: int = 100) -> list[Loss]:
    """Return at most `limit` losses, newest first."""
    rows = read("SELECT at, text, packages, payloads FROM loss ORDER BY number DESC LIMIT ?", limit)
    return [Loss(*row) for row in rows]


def forget(*, end_time: float) -> Note:
    """Return the operation that deletes the losses from before `end_time` (elapsed time)."""

    def store(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM loss WHERE at < ?", (end_time,))

    return store
