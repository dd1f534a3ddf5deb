"""Finds the holder of a handheld in the hub's directory, in the kit's settings, or by the join
code.

A person is *known* as long as the handheld uses the first key that it sent. After a change of the
key, the person is a guest. The entries in the directory and the settings name only the handheld, so
they no longer apply after the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fieldagent.agent.journal import directory, handhelds
from fieldagent.agent.journal.journal import Journal
from fieldagent.system.lazy_named_tuple import NamedTuple


class Holder(NamedTuple):
    handle: str
    name: str
    """Name that people see. If the person has never sent a name, this is the handle."""
    is_known: bool
    author: int | None = None
    """Number of the user at the hub, if the hub knows the person."""
    caveat: str = ""
    """Warning that is shown with the person's name if the person is not authenticated."""

    @property
    def signature(self) -> str:
        """Return the prefix of the person's messages, which contains the name and the warning. For
        a user of the hub, the prefix contains no name, because the hub shows the name.
        """
        name = self.name if self.author is None else ""
        holder_text = " ".join(filter(None, (name, self.caveat)))
        return f"{holder_text}: " if holder_text else ""

    def add_name(self, text: str) -> str:
        """Return the text after the name of its sender. If the hub shows the name, return the text
        unchanged.
        """
        return self.signature + text


def find_holder(
    journal: Journal, names: Mapping[str, str], handle: str, key: bytes | None = None
) -> Holder:
    """Return the holder of a handheld. `names` contains the handhelds in the settings. `key` is the
    key that authenticated the message. If `key` is None, the key is not checked.
    """
    handheld = handhelds.read_handheld(journal, handle)
    name = names.get(handle) or handheld.name or handle
    if handheld.other_key is not None or (key is not None and handheld.key and key != handheld.key):
        return Holder(handle, name, is_known=False)
    person = directory.find_by_handle(journal, handle)
    if person is not None:
        return Holder(handle, person.name, True, person.number)
    return Holder(handle, name, handle in names or handheld.joined is not None)


class Handles(NamedTuple):
    """Finds a person's handheld. Only handhelds that the kit's radio can reach are considered."""

    journal: Journal
    own: Mapping[str, str]
    """Names in the settings, by handle."""
    is_handle: Callable[[str], bool]
    """Returns True if a handle belongs to the kind of the kit's radio."""

    def find_by_name(self, name: str) -> str | None:
        """Return a handheld of the person with this name. A person in the directory may have
        several; the first one that the radio can reach is returned. Return None if no handheld has
        the name, or if several handhelds outside the directory have it.
        """
        person = directory.find_by_name(self.journal, name)
        if person is not None and (reached := self._list_reached(person.handles)):
            return reached[0]
        folded_name = name.casefold()
        handles = {
            handle for handle, called in self.own.items() if called.casefold() == folded_name
        }
        handles |= {
            each.handle
            for each in handhelds.list_recently_heard(self.journal)
            if each.joined is not None and each.name.casefold() == folded_name
        }
        reachable = self._list_reached(handles)
        return reachable[0] if len(reachable) == 1 else None

    def find_by_user(self, user_number: int) -> str | None:
        """Return the handheld of the hub's user with this number, or None if there is none."""
        for person in directory.list_people(self.journal):
            if (person.kind, person.number) == (directory.USER, user_number):
                reached = self._list_reached(person.handles)
                return reached[0] if reached else None
        return None

    def _list_reached(self, handles: Iterable[str]) -> list[str]:
        return [handle for handle in handles if self.is_handle(handle)]
