"""Writes an intact journal beside a damaged one, with all content that could be saved.

The damaged one is only read. Power may fail at any moment: `opening` renames the new journal once
it is complete. The next start repeats the repair, or finishes the renaming.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from fieldagent.agent.journal import lived, losses
from fieldagent.agent.journal.high_water import HighWater
from fieldagent.agent.journal.rescue.salvage import Saved, salvage
from fieldagent.agent.journal.schema import JOURNAL
from fieldagent.store.pages import Pages
from fieldagent.store.sqlite import connect, reader

log = logging.getLogger(__name__)


def mend(path: Path, new: Path, mark: HighWater, why: str, bad: str) -> str:
    """Write the journal `new`, which must not exist yet, and return a sentence about the saved
    content.

    `mark` contains the highest numbers of the damaged journal at `path`, `why` the damage, and
    `bad` the name under which it will be kept. Raises sqlite3.Error, OSError.
    """
    log.error("the journal %s is damaged (%s): saving its intact entries", path, why)
    pages = Pages(_content(path), _content(path.with_name(f"{path.name}-wal")))
    connection = connect(new, JOURNAL, checked=True)
    try:
        now = time.time() - _ahead(path)
        saved = _save(pages, connection, mark, now, f"the journal was damaged ({why})", bad)
    finally:
        connection.close()
    return saved.in_words()


def _save(
    pages: Pages, connection: sqlite3.Connection, mark: HighWater, now: float, why: str, bad: str
) -> Saved:
    connection.execute("PRAGMA foreign_keys=OFF")
    connection.execute("BEGIN IMMEDIATE")
    saved = salvage(pages, connection, mark, now)
    text = f"{why}: {saved.in_words()}. The damaged one is kept as {bad}"
    lost = len(saved.damaged) + saved.unknown
    losses.note(connection, losses.Loss(now, text, lost, saved.payloads_lost))
    connection.execute("COMMIT")
    # Without a write-ahead log all content is in the one file, which will be renamed.
    connection.execute("PRAGMA journal_mode=DELETE").fetchall()
    return saved


def _ahead(path: Path) -> float:
    """Return the seconds by which the wall clock is ahead of the time in the damaged journal; 0 if
    that cannot be read.
    """
    with suppress(sqlite3.Error, UnicodeDecodeError), closing(reader(path)) as damaged:
        base = lived.known(damaged)
        return 0.0 if base is None else base.offset
    return 0.0


def _content(path: Path) -> bytes:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return b""
