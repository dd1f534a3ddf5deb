"""Whom a Package may be for: the users, groups and kits of the workspace, as the hub tells them
over a link; without that, whoever was introduced."""

from __future__ import annotations

import json
import logging
import sqlite3
from typing import TYPE_CHECKING

from fieldagent.agent.journal.journal import Journal
from fieldagent.package.package import Person as Named
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import counted

if TYPE_CHECKING:
    # A kit without a link to the hub does without the memory that notes take.
    from fieldagent.wire.kit_note import Directory

log = logging.getLogger(__name__)

USER, GROUP, DEVICE = "user", "group", "device"


class Person(NamedTuple):
    number: int
    name: str
    kind: str
    """`user`, `group` or `device`."""
    handles: tuple[str, ...] = ()
    """Radios of a user's, by the ids that those have on their own air."""

    @property
    def as_named(self) -> Named:
        """Return what the `to` of a Package for them is."""
        if self.kind == DEVICE:
            return f"{DEVICE}:{self.name}"
        return -self.number if self.kind == GROUP else self.number


_PEOPLE = "SELECT number, name, kind, handles FROM person"


def _person(number: int, name: str, kind: str, handles: str) -> Person:
    return Person(number, name, kind, tuple(json.loads(handles)))


def people(journal: Journal) -> list[Person]:
    """Return all, users first, each kind by name; those who were introduced stand in for a
    directory that never came."""
    rows = journal.read(f"{_PEOPLE} ORDER BY kind = 'device', kind = 'group', name")
    return [_person(*row) for row in rows] or _introduced(journal)


def _introduced(journal: Journal) -> list[Person]:
    rows = journal.read("SELECT origin, name FROM identity WHERE origin > 0 ORDER BY name")
    return [Person(number, name, USER) for number, name in rows if name]


def by_name(journal: Journal, text: str) -> Person | None:
    """Return the one who is called that, perhaps with `user:`, `group:` or `device:` before it.
    Capitals decide only between names that differ by nothing else. None where nobody is, or
    several are."""
    return _called(people(journal), text)


def _called(listed: list[Person], text: str) -> Person | None:
    kind, colon, name = text.partition(":")
    if not colon or kind not in (USER, GROUP, DEVICE):
        kind, name = "", text
    there = [each for each in listed if kind in ("", each.kind)]
    for matches in (
        [each for each in there if each.name == name],
        [each for each in there if each.name.casefold() == name.casefold()],
    ):
        if kind == "":
            # A kit often bears its user's name.
            matches = [each for each in matches if each.kind != DEVICE] or matches
        if matches:
            return matches[0] if len(matches) == 1 else None
    return None


def by_handle(journal: Journal, handle: str) -> Person | None:
    """Return the user whose radio has that id."""
    wanted = handle.casefold()
    for person in people(journal):
        if wanted in (each.casefold() for each in person.handles):
            return person
    return None


def resolved(journal: Journal, named: Named | None) -> Named | None:
    """Return the number of who is named by text, and the text as it is of who is not known here:
    the hub looks for them."""
    if not isinstance(named, str):
        return named
    person = by_name(journal, named)
    return named if person is None else person.as_named


def in_words(journal: Journal, named: Named) -> str:
    """Return what a person is called; the number where that is all that is known."""
    if isinstance(named, str):
        return named
    kind = GROUP if named < 0 else USER
    for person in people(journal):
        if (person.kind, person.number) == (kind, abs(named)):
            return person.name
    return f"{kind} {abs(named)}"


def identity_json(db: sqlite3.Connection, named: Named) -> dict[str, str]:
    """Return who is named as an event tells it: `id`, `name` and `type`, as far as known."""
    if isinstance(named, str):
        person = _called([_person(*row) for row in db.execute(_PEOPLE)], named)
        if person is None:
            return {"name": named}
        return {
            "id": str(person.number),
            "name": person.name,
            "type": person.kind.capitalize(),
        }
    kind = GROUP if named < 0 else USER
    row = (
        db.execute(
            "SELECT name FROM person WHERE kind = ? AND number = ?", (kind, abs(named))
        ).fetchone()
        or db.execute("SELECT name FROM identity WHERE origin = ?", (named,)).fetchone()
    )
    return {"id": str(abs(named)), "name": row[0] if row else "", "type": kind.capitalize()}


def version(journal: Journal) -> int:
    """Return which directory of the hub's is here; 0 is none."""
    rows = journal.read("SELECT version FROM directory")
    return int(rows[0][0]) if rows else 0


def owner(journal: Journal) -> int:
    """Return the number of the user whose kit this is; 0 where the hub has not told."""
    rows = journal.read("SELECT owner FROM directory")
    return int(rows[0][0]) if rows else 0


def is_for_others(db: sqlite3.Connection, named: Named | None) -> bool:
    """Return whether what is for them is certainly not for whoever has this kit."""
    rows = db.execute("SELECT owner FROM directory").fetchall()
    if not rows or not isinstance(named, int):
        return False
    ((whose,),) = rows
    if named > 0:
        return bool(whose != named)
    group = db.execute(
        "SELECT members FROM person WHERE kind = 'group' AND number = ?", (-named,)
    ).fetchone()
    return group is not None and whose not in json.loads(group[0])


async def keep(journal: Journal, directory: Directory) -> None:
    """Replace the directory by what the hub tells. Raises what the journal raises."""

    def store(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM person")
        db.executemany(
            "INSERT OR REPLACE INTO person (kind, number, name, handles, members)"
            " VALUES (?, ?, ?, ?, ?)",
            [
                (
                    each.kind,
                    each.number,
                    each.name,
                    json.dumps(each.handles),
                    json.dumps(each.members),
                )
                for each in directory.people
            ],
        )
        db.execute(
            "INSERT OR REPLACE INTO directory VALUES (1, ?, ?)",
            (directory.version, directory.owner),
        )

    await journal.persist(store)
    log.info("the hub's directory has come: %s", counted(len(directory.people), "name"))
