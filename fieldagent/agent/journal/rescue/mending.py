"""Writes a whole journal beside a damaged one, with all of it that could be saved.

The damaged one is only read. Power may fail at any moment: `opening` gives the new one its name
once it is complete, and at the next start begins anew, or goes on with what is there.
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
    """Write the journal `new`, of which nothing is there yet, and return in words what was saved.

    `mark` says how far the damaged one at `path` had come, `why` what is damaged, and `bad` under
    which name it is going to be kept. Raises sqlite3.Error, OSError.
    """
    log.error("the journal %s is damaged (%s): what is whole in it is being saved", path, why)
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
    # All of it into the one file, which is going to be renamed.
    connection.execute("PRAGMA journal_mode=DELETE").fetchall()
    return saved


def _ahead(path: Path) -> float:
    """Return by how much the wall clock is ahead of the time in the damaged journal, in seconds; 0
    where that cannot be read any more."""
    with suppress(sqlite3.Error, UnicodeDecodeError), closing(reader(path)) as damaged:
        base = lived.known(damaged)
        return 0.0 if base is None else base.offset
    return 0.0


def _content(path: Path) -> bytes:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return b""
