"""Versions of a database's tables, and the steps between them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from fieldagent.system.lazy_dataclass import dataclass

LATER_VERSION_TEXT = (
    "{} was written by a later version of fieldagent ({}), and is not changed: install the later"
    " version again, or put back the copy from before the upgrade"
)
"""Text for people about a database of a later version. `docs/how-to/update.md` contains the same
text under Rollback."""


EARLIER_VERSION_TEXT = (
    "{} was written by a version of fieldagent before its first release ({}), and"
    " is not changed: move it away, or name another"
)


class WrongVersion(sqlite3.DatabaseError):
    """Error: this program cannot use an undamaged database, because the tables have another
    version.
    """

    def __init__(self, template: str, reason: str) -> None:
        super().__init__(reason)
        self._template = template

    def describe_for(self, database: str) -> str:
        """Return the text for people about the database with the name `database`."""
        return self._template.format(database, self)


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables of a database. `version` is stored in the database. `steps` contains the SQL from each
    earlier version to the next.
    """

    version: int
    tables: str
    steps: Mapping[int, str]

    @property
    def first(self) -> int:
        """Return the version of the first release, the lowest version of any database."""
        return min(self.steps, default=self.version)

    def can_use(self, version: int) -> bool:
        """Return True if this program can use a database of `version`."""
        return self.first <= version <= self.version

    def judge(self, version: int) -> None:
        """Raise WrongVersion if this program cannot use a database of `version`. Raise
        sqlite3.DatabaseError if no program can have written this version. Version 0 means an empty
        database.
        """
        if version < 0:
            raise sqlite3.DatabaseError(f"no program has given it the version {version}")
        if version > self.version:
            difference = f"it has version {version}, this program knows {self.version}"
            raise WrongVersion(LATER_VERSION_TEXT, difference)
        if 0 < version < self.first:
            difference = f"it has version {version}, the first release has {self.first}"
            raise WrongVersion(EARLIER_VERSION_TEXT, difference)

    def get_upgrade_steps(self, version: int) -> str:
        """Return the SQL that upgrades a database from `version`. Version 0 means an empty
        database.

        Raises the same errors as `judge`.
        """
        self.judge(version)
        if version == 0:
            return self.tables
        return "".join(self.steps[number] for number in range(version, self.version))
