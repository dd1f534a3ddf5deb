"""Versions of a database's tables, and the steps between them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from fieldagent.system.lazy_dataclass import dataclass

WRITTEN_LATER = (
    "{} was written by a later version of fieldagent ({}), and is left as it is: install the later"
    " version again, or put back the copy from before the upgrade"
)
"""What people are told of it, and why, wherever it is. `docs/operating.md` has the same words under
Rollback; a test holds them together."""


class TooNew(sqlite3.DatabaseError):
    """A later version of the program has written it."""


@dataclass(frozen=True, slots=True)
class Schema:
    """`version` is kept in the database; `steps` lead from each earlier one to the one after."""

    version: int
    tables: str
    steps: Mapping[int, str]

    def judge(self, version: int) -> None:
        """Raise TooNew where a later program has written a database of that version, and
        sqlite3.DatabaseError where none has."""
        if version < 0:
            raise sqlite3.DatabaseError(f"no program has given it the version {version}")
        if version > self.version:
            raise TooNew(f"it has version {version}, this program knows {self.version}")

    def steps_from(self, version: int) -> str:
        """SQL that brings a database of that version here; 0 is an empty one.

        Raises as `judge` does.
        """
        self.judge(version)
        if version == 0:
            return self.tables
        return "".join(self.steps[number] for number in range(version, self.version))
