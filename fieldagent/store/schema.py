"""Versions of a database's tables, and the steps between them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from fieldagent.system.lazy_dataclass import dataclass

WRITTEN_LATER = (
    "{} was written by a later version of fieldagent ({}), and is left as it is: install the later"
    " version again, or put back the copy from before the upgrade"
)
"""What people are told of it, and why, wherever it is. `docs/how-to/update.md` has the same words
under Rollback; a test holds them together."""


WRITTEN_EARLIER = (
    "{} was written by a build of fieldagent from before its first release ({}), and is left as it"
    " is: move it away, or name another"
)


class WrongVersion(sqlite3.DatabaseError):
    """A whole database that this program cannot use, as its tables are of another version."""

    def __init__(self, template: str, why: str) -> None:
        super().__init__(why)
        self._template = template

    def of(self, database: str) -> str:
        """Return what people are told of a database of that name."""
        return self._template.format(database, self)


@dataclass(frozen=True, slots=True)
class Schema:
    """`version` is kept in the database; `steps` lead from each earlier one to the one after."""

    version: int
    tables: str
    steps: Mapping[int, str]

    @property
    def first(self) -> int:
        """Return the version of the first release: none has written an earlier one."""
        return min(self.steps, default=self.version)

    def knows(self, version: int) -> bool:
        """Return whether a database of that version is one for this program."""
        return self.first <= version <= self.version

    def judge(self, version: int) -> None:
        """Raise WrongVersion where another program has written a database of that version, and
        sqlite3.DatabaseError where none has; 0 is an empty one."""
        if version < 0:
            raise sqlite3.DatabaseError(f"no program has given it the version {version}")
        if version > self.version:
            why = f"it has version {version}, this program knows {self.version}"
            raise WrongVersion(WRITTEN_LATER, why)
        if 0 < version < self.first:
            why = f"it has version {version}, the first release has {self.first}"
            raise WrongVersion(WRITTEN_EARLIER, why)

    def steps_from(self, version: int) -> str:
        """Return SQL that brings a database of that version here; 0 is an empty one.

        Raises as `judge` does.
        """
        self.judge(version)
        if version == 0:
            return self.tables
        return "".join(self.steps[number] for number in range(version, self.version))
