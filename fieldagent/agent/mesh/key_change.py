"""How far the change of the group's radio-key is on this kit, and who still sends with the old key.

Every kit takes a step before any takes the next, so that everybody hears everybody throughout:
first each hears both keys and sends with the old one, then with the new one, then has it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from fieldagent.system.lazy_named_tuple import NamedTuple

if TYPE_CHECKING:
    from fieldagent.agent.mesh.neighbours import Neighbours


class KeyStep(IntEnum):
    NONE = 0
    """There is one key, or none."""
    SENDS_OLD = 1
    SENDS_NEW = 2

    @classmethod
    def of(cls, keys: Sequence[bytes], following: Sequence[bytes]) -> KeyStep:
        """Return the step at which `radio-key` and `radio-key-next` of the settings are."""
        if following:
            return cls.SENDS_OLD
        return cls.SENDS_NEW if len(keys) > 1 else cls.NONE


class GroupKeys(NamedTuple):
    """What tags on the air (`wire.envelope.derive_key`, AIR)."""

    keys: Sequence[bytes] = ()
    """The first tags what is sent, all are heard; without any nothing is tagged."""
    dropped: Sequence[bytes] = ()
    """Who still sends with one of these is named, and not heard."""


class KeyChange:
    def __init__(self, step: KeyStep, neighbours: Neighbours) -> None:
        self.step = step
        self._neighbours = neighbours

    def move(self, step: KeyStep) -> None:
        """Note that the keys are others from now on: nobody was heard with one of them yet."""
        self.step = step
        for each in self._neighbours.known.values():
            each.key = None

    def name_of(self, key: int | None) -> str | None:
        """Return which key a packet was tagged with: `old` or `new`; None where there are not
        two."""
        if self.step is KeyStep.NONE or key is None:
            return None
        return "new" if (key == 0) is (self.step is KeyStep.SENDS_NEW) else "old"

    def facts(self) -> dict[str, Any]:
        """Return for the status of the channel: the step, and who of those in earshot sends with
        which key."""
        if self.step is KeyStep.NONE:
            return {}
        stations: dict[str, list[int]] = {"old": [], "new": []}
        for number in sorted(self._neighbours.in_earshot()):
            if name := self.name_of(self._neighbours.known[number].key):
                stations[name].append(number)
        return {"keyChange": {"step": int(self.step), **stations}}

    def notice(self) -> str:
        """Return what needs attention until it is over; empty before and after."""
        change = self.facts().get("keyChange")
        return in_words(self.step, change["old"], change["new"]) if change else ""


def in_words(step: KeyStep, old: Sequence[int], new: Sequence[int]) -> str:
    """Return the step as a sentence for people. `old` and `new` are the stations that were heard
    lately to send with that key."""
    if step is KeyStep.SENDS_OLD:
        heard = f"heard with the new one already: {_listed(new)}"
        does = "sends with radio-key, and hears radio-key-next too"
        then = "once all kits are at this step, set radio-key to the new and the old key"
    else:
        heard = f"still heard with the old one: {_listed(old)}"
        does = "sends with the first of radio-key, and hears the second too"
        then = "once all kits are at this step, remove the second"
    return f"the change of radio-key is at step {step:d} of 3: this kit {does}; {heard}; {then}"


def _listed(stations: Sequence[int]) -> str:
    if not stations:
        return "nobody"
    return ("station " if len(stations) == 1 else "stations ") + ", ".join(map(str, stations))
