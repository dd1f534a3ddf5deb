"""Possible addressees of a Package: the workspace's users, groups and kits. The hub sends this
directory over a link. Without a directory, the addressees are the people who have sent their names.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from typing import TYPE_CHECKING

from fieldagent.agent.journal.journal import Journal
from fieldagent.package.package import Person as Named
from fieldagent.package.reading import Fault, InvalidPackage
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import format_count, sentence

if TYPE_CHECKING:
    # Import the notes only for type checks: a kit without a link to the hub does not need them, and
    # saves the memory.
    from fieldagent.wire.kit_note import Directory

log = logging.getLogger(__name__)

USER, GROUP, DEVICE = "user", "group", "device"


class Person(NamedTuple):
    number: int
    name: str
    kind: str
    """`user`, `group` or `device`."""
    handles: tuple[str, ...] = ()
    """Ids of the user's handheld radios."""

    @property
    def as_named(self) -> Named:
        """Return the addressee in the form that a Package contains."""
        if self.kind == DEVICE:
            return f"{DEVICE}:{self.name}"
        return -self.number if self.kind == GROUP else self.number


_PEOPLE = "SELECT number, name, kind, handles FROM person"


def _read_person(number: int, name: str, kind: str, handle_texts: str) -> Person:
    return Person(number, name, kind, tuple(json.loads(handle_texts)))


def list_people(journal: Journal) -> list[Person]:
    """Return all addressees, users first, each kind sorted by name. If no directory has arrived,
    return the people who have sent their names.
    """
    rows = journal.read(f"{_PEOPLE} ORDER BY kind = 'device', kind = 'group', name")
    return [_read_person(*row) for row in rows] or _list_introduced(journal)


def _list_introduced(journal: Journal) -> list[Person]:
    rows = journal.read("SELECT origin, name FROM identity WHERE origin > 0 ORDER BY name")
    return [Person(number, name, USER) for number, name in rows if name]


def find_by_name(journal: Journal, text: str) -> Person | None:
    """Return the addressee whose name is `text`. The text may start with `user:`, `group:` or
    `device:`. Case matters only between names that are otherwise equal. Return None if there is no
    match, or more than one.
    """
    return _find_person_by_name(list_people(journal), text)


def _find_person_by_name(candidates: list[Person], text: str) -> Person | None:
    kind, name = _split_kind_and_name(text)
    people = [each for each in candidates if kind in ("", each.kind)]
    for matches in (
        [each for each in people if each.name == name],
        [each for each in people if each.name.casefold() == name.casefold()],
    ):
        if kind == "":
            # A kit often has the same name as its user. Then return the user.
            matches = [each for each in matches if each.kind != DEVICE] or matches
        if matches:
            return matches[0] if len(matches) == 1 else None
    return None


def _split_kind_and_name(text: str) -> tuple[str, str]:
    """Return the kind ('' if it is missing) and the name of an addressee that a person has
    typed.
    """
    kind, colon, name = text.partition(":")
    return (kind, name.strip()) if colon and kind in (USER, GROUP, DEVICE) else ("", text.strip())


def find_by_handle(journal: Journal, handle: str) -> Person | None:
    """Return the user whose entry in the directory lists the handheld `handle`, or None if there is
    none. Case is ignored.
    """
    folded = handle.casefold()
    for person in list_people(journal):
        if folded in (each.casefold() for each in person.handles):
            return person
    return None


def resolve(journal: Journal, addressee: Named | None) -> Named | None:
    """Return the addressee with the number instead of the name. An unknown name is returned
    unchanged, because the hub may know it.
    """
    if not isinstance(addressee, str):
        return addressee
    person = find_by_name(journal, addressee)
    return addressee if person is None else person.as_named


class NoSuchPerson(InvalidPackage):
    """The hub's directory does not contain the addressee of a Package."""


def require_known(journal: Journal, addressee: Named | None) -> None:
    """Raise NoSuchPerson, with the most similar names, if the hub does not know the addressee. If
    the kit does not have the hub's complete directory, it cannot decide this, and accepts any name.
    Email addresses and phone numbers are not checked, because the directory does not contain them.
    """
    if not isinstance(addressee, str) or "@" in addressee or addressee.startswith("+"):
        return
    if not read_version(journal):
        return
    # Import these modules here, because only a kit with the hub's directory needs them.
    from difflib import get_close_matches

    from fieldagent.wire.kit_note import DIRECTORY_MAX

    people = list_people(journal)
    kind, name = _split_kind_and_name(addressee)
    # Programs are not in the directory, but a kit that has heard a program can answer it.
    names = {each.name for each in people if kind in ("", each.kind)}
    names |= {each.name for each in _list_introduced(journal)}
    folded = {each.casefold(): each for each in sorted(names)}
    if len(people) >= DIRECTORY_MAX or name.casefold() in folded:
        return
    near = get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)
    nearest = ", ".join(folded[each] for each in near)
    hint = (
        sentence(
            "no such person: {name}; nearest: {nearest}. If the person is new, use the user's"
            " number",
            name=name,
            nearest=nearest,
        )
        if nearest
        else sentence(
            "no such person: {name}. If the person is new, use the user's number", name=name
        )
    )
    raise NoSuchPerson([Fault(hint, "/to")])


def describe_addressee(journal: Journal, addressee: Named) -> str:
    """Return the addressee's name, or the number if the name is unknown."""
    if isinstance(addressee, str):
        return addressee
    kind = GROUP if addressee < 0 else USER
    for person in list_people(journal):
        if (person.kind, person.number) == (kind, abs(addressee)):
            return person.name
    return f"{kind} {abs(addressee)}"


def make_identity_members(db: sqlite3.Connection, addressee: Named) -> dict[str, str]:
    """Return the addressee's members in an event: `id`, `name` and `type`, if known."""
    if isinstance(addressee, str):
        person = _find_person_by_name(
            [_read_person(*row) for row in db.execute(_PEOPLE)], addressee
        )
        if person is None:
            return {"name": addressee}
        return {
            "id": str(person.number),
            "name": person.name,
            "type": person.kind.capitalize(),
        }
    kind = GROUP if addressee < 0 else USER
    row = (
        db.execute(
            "SELECT name FROM person WHERE kind = ? AND number = ?", (kind, abs(addressee))
        ).fetchone()
        or db.execute("SELECT name FROM identity WHERE origin = ?", (addressee,)).fetchone()
    )
    return {"id": str(abs(addressee)), "name": row[0] if row else "", "type": kind.capitalize()}


def read_version(journal: Journal) -> int:
    """Return the version of the stored directory, or 0 if there is none."""
    rows = journal.read("SELECT version FROM directory")
    return int(rows[0][0]) if rows else 0


def read_owner(journal: Journal) -> int:
    """Return the user number of this kit's owner, or 0 if the hub has not sent the owner."""
    rows = journal.read("SELECT owner FROM directory")
    return int(rows[0][0]) if rows else 0


def is_for_others(db: sqlite3.Connection, addressee: Named | None) -> bool:
    """Return True if an item for the user or group `addressee` is not for the kit's owner. Return
    False if this is unknown, for example because the addressee is a name.
    """
    rows = db.execute("SELECT owner FROM directory").fetchall()
    if not rows or not isinstance(addressee, int):
        return False
    ((owner,),) = rows
    if addressee > 0:
        return bool(owner != addressee)
    group = db.execute(
        "SELECT members FROM person WHERE kind = 'group' AND number = ?", (-addressee,)
    ).fetchone()
    return group is not None and owner not in json.loads(group[0])


async def store_directory(journal: Journal, directory: Directory) -> None:
    """Replace the stored directory by the hub's new directory. Raises the journal's errors."""

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
    log.info("received the hub's directory: %s", format_count(len(directory.people), "name"))
