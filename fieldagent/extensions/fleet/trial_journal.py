"""Copies and restores the agent's journal during a trial of a new program.

The journal and the files beside it belong to the agent's user, so these functions run as that user.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from fieldagent.agent.journal.carry_over import replace_content
from fieldagent.store.sqlite import copy_whole
from fieldagent.system.as_owner import run_as_owner
from fieldagent.system.folder import rename_file, sync_folder

T = TypeVar("T")
NAME = "journal.sqlite3"
OLD_JOURNAL_COPY = f"{NAME}.before"
"""Copy of the old journal, for a rollback."""
NEW_JOURNAL_COPY = f"{NAME}.before-new"


def read_version(state: Path) -> int:
    """Return the version of the journal's tables, or 0 if there is no journal. Raises OSError."""
    return _retry(_read_version, state)


def copy_journal(state: Path, expected: int) -> None:
    """Copy the journal and its log for a rollback. If the journal's version is not `expected`, do
    nothing, because the journal was copied before. Raises OSError.
    """
    _retry(partial(_copy_file, expected=expected), state)


def restore_journal(state: Path, old_version: int, program: str) -> str:
    """If the new `program` has upgraded the journal, restore the journal of version `old_version`
    with all contents of the upgraded journal. Return a text for people about contents that cannot
    be restored, or an empty text. Raises OSError.
    """
    return _retry(partial(_restore_journal, old_version=old_version, program=program), state)


def forget(state: Path) -> None:
    """Remove both copies of the journal. Raises OSError."""
    _retry(_forget, state)


def _retry(work: Callable[[Path], T], state: Path) -> T:
    def do() -> T:
        try:
            return work(state)
        except sqlite3.Error as error:
            raise OSError(f"{state / NAME}: {error}") from None

    return run_as_owner(state, do)


def _read_version(state: Path) -> int:
    journal = state / NAME
    try:
        mode = journal.stat().st_mode
    except FileNotFoundError:
        return 0
    if not stat.S_ISREG(mode):
        raise OSError(f"{journal} is no file: move it away")
    with closing(_open_journal(journal)) as reader:
        ((number,),) = reader.execute("PRAGMA user_version")
    return int(number)


def _open_journal(journal: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{journal.absolute().as_uri()}?mode=rw", uri=True)


def _copy_file(state: Path, expected: int) -> None:
    # If the version has changed, the new program ran before a power failure. Keep the earlier copy.
    if not expected or _read_version(state) != expected:
        return
    with closing(_open_journal(state / NAME)) as source:
        copy_whole(source, state / NEW_JOURNAL_COPY)
    (state / NEW_JOURNAL_COPY).rename(state / OLD_JOURNAL_COPY)
    sync_folder(state)


def _restore_journal(state: Path, old_version: int, program: str) -> str:
    if not old_version or _read_version(state) <= old_version:
        return ""
    journal = state / NAME
    newer_journal = journal.with_name(f"{NAME}.of-{program}")
    with closing(_open_journal(journal)) as writer:
        # Write the WAL into the database file. SQLite would apply a remaining WAL to the restored
        # journal.
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    restored_journal = journal.with_name(f"{NAME}.restored")
    with closing(_open_journal(state / OLD_JOURNAL_COPY)) as source:
        copy_whole(source, restored_journal)
    lost_text = ""
    try:
        replace_content(journal, restored_journal)
    except sqlite3.Error as error:
        lost_text = (
            f"items that were accepted in the meantime are only in {newer_journal} ({error})"
        )
    newer_journal.unlink(missing_ok=True)
    os.link(journal, newer_journal)
    rename_file(restored_journal, journal)
    return lost_text


def _forget(state: Path) -> None:
    for each in (OLD_JOURNAL_COPY, NEW_JOURNAL_COPY):
        (state / each).unlink(missing_ok=True)
