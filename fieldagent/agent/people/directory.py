"""Holder is behind a handheld: by the hub's directory, by the kit's own settings, or by the code.

A person is *known* while the handheld's key is the one that it first told; a guest otherwise. The
hub's and the settings' word is about a handheld, so it falls with the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fieldagent.agent.journal import directory, handhelds
from fieldagent.agent.journal.journal import Journal
from fieldagent.system.lazy_named_tuple import NamedTuple


class Holder(NamedTuple):
    handle: str
    name: str
    """What people call them; the handle where they never told."""
    is_known: bool
    author: int | None = None
    """The user's number at the hub, where that knows them."""
    caveat: str = ""
    """Said beside their name, where nothing proves who it is."""

    @property
    def signature(self) -> str:
        """Return what stands before their words, so that whoever reads these sees who: of a user
        the hub tells that."""
        name = self.name if self.author is None else ""
        who = " ".join(filter(None, (name, self.caveat)))
        return f"{who}: " if who else ""

    def in_their_name(self, text: str) -> str:
        """Return a text with its sender before it, where the hub does not tell who that is."""
        return self.signature + text


def who(journal: Journal, own: Mapping[str, str], handle: str, key: bytes | None = None) -> Holder:
    """Return who has a handheld. `own` are those whom the settings name; `key` is what proves a
    message theirs, None where that is not asked."""
    handheld = handhelds.handheld(journal, handle)
    name = own.get(handle) or handheld.name or handle
    if handheld.other_key is not None or (key is not None and handheld.key and key != handheld.key):
        return Holder(handle, name, is_known=False)
    person = directory.by_handle(journal, handle)
    if person is not None:
        return Holder(handle, person.name, True, person.number)
    return Holder(handle, name, handle in own or handheld.joined is not None)


class Handles(NamedTuple):
    """Finds the handheld of a person, among those that the kit's radio can reach."""

    journal: Journal
    own: Mapping[str, str]
    """Those whom the settings name."""
    is_handle: Callable[[str], bool]
    """Whether a handle is of the radio's own kind."""

    def of(self, name: str) -> str | None:
        """Return that of whoever is called that; None where nobody has one, or several are."""
        person = directory.by_name(self.journal, name)
        if person is not None and (reached := self._reached(person.handles)):
            return reached[0]
        wanted = name.casefold()
        handles = {handle for handle, called in self.own.items() if called.casefold() == wanted}
        handles |= {
            each.handle
            for each in handhelds.around(self.journal)
            if each.joined is not None and each.name.casefold() == wanted
        }
        there = self._reached(handles)
        return there[0] if len(there) == 1 else None

    def of_user(self, number: int) -> str | None:
        """Return that of the hub's user of that number."""
        for person in directory.people(self.journal):
            if (person.kind, person.number) == (directory.USER, number):
                reached = self._reached(person.handles)
                return reached[0] if reached else None
        return None

    def _reached(self, handles: Iterable[str]) -> list[str]:
        return [handle for handle in handles if self.is_handle(handle)]
