"""What damage to the journal has cost, as people are told it until it is long past."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from fieldagent.system.lazy_named_tuple import NamedTuple

Note = Callable[[sqlite3.Connection], None]


class Loss(NamedTuple):
    at: float
    text: str
    packages: int = 0
    """That ended by it, or are unknown by it."""
    payloads: int = 0


def note(db: sqlite3.Connection, loss: Loss) -> None:
    """Write down what was lost, for `status` and the page to tell."""
    db.execute("INSERT INTO loss (at, text, packages, payloads) VALUES (?, ?, ?, ?)", loss)


def damaged(sequence: int, id_: int | None, at: float) -> Note:
    """Note the loss of a Package whose row is not what was accepted; the row is kept for a look."""
    which = f"number {sequence}" if id_ is None else str(id_)
    text = f"Package {which} is damaged on the disk and was not sent: post it again"

    def store(db: sqlite3.Connection) -> None:
        note(db, Loss(at, text, packages=1))

    return store


def listing(read: Callable[..., list[Any]], limit: int = 100) -> list[Loss]:
    """List the losses, the newest first."""
    rows = read("SELECT at, text, packages, payloads FROM loss ORDER BY number DESC LIMIT ?", limit)
    return [Loss(*row) for row in rows]


def forget(*, before: float) -> Note:
    """Remove the losses from before a lived time."""

    def store(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM loss WHERE at < ?", (before,))

    return store
