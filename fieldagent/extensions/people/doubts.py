"""Handhelds whose identity people should check, for any firmware.

another key      A radio that is identified by its number (Meshtastic) has a new key. It was reset,
                 or another person uses its number.
a known name     An unknown radio has the name of a known person. If the key is the identity
                 (MeshCore), this may be the person's new radio, or an impostor's.
"""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.agent.journal import directory, handhelds
from fieldagent.agent.journal.journal import Journal
from fieldagent.extensions.people.contract import shorten_handle
from fieldagent.system.lazy_named_tuple import NamedTuple

ANOTHER_KEY = (
    "the radio {handle} ({name}) has a new key: it was set up again, or another person uses"
    " its number; it counts as a guest until it joins again"
)
NAMESAKE = (
    "the radio {handle} uses the name {name} of {other}, which is known: it is that person's"
    " new radio, or another person's. Ask them: it counts as a guest until they write the"
    " join code, or you add it"
)


class Doubt(NamedTuple):
    handle: str
    notice: str
    """The fact and the remedy, for people."""
    namesake_of: str | None = None
    """Handle of the radio of the known person with the same name; None if there is none."""


def list_doubts(journal: Journal, settings_names: Mapping[str, str]) -> list[Doubt]:
    """Return the doubtful handhelds that were heard recently. `settings_names` contains the
    handhelds in the settings.
    """
    recently_heard = handhelds.list_recently_heard(journal)
    changed = {each.handle for each in recently_heard if each.other_key is not None}
    names = {
        **settings_names,
        **{each.handle: each.name for each in recently_heard if each.joined is not None},
    }
    for person in directory.list_people(journal):
        names |= dict.fromkeys(person.handles, person.name)
    known_names = {handle: name for handle, name in names.items() if handle not in changed}
    by_name = {name.casefold(): handle for handle, name in known_names.items() if name}
    by_name |= {
        each.name.casefold(): each.handle for each in recently_heard if each.handle in known_names
    }
    entries = []
    for each in recently_heard:
        details = {"handle": shorten_handle(each.handle), "name": each.name}
        if each.handle in changed:
            entries.append(Doubt(each.handle, ANOTHER_KEY.format(**details)))
        elif each.name and each.handle not in known_names:
            other = by_name.get(each.name.casefold())
            if other is not None:
                warning = NAMESAKE.format(**details, other=shorten_handle(other))
                entries.append(Doubt(each.handle, warning, other))
    return entries
