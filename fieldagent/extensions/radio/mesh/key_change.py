"""Tracks the change of the group's radio key on this kit, and which stations still send with the
old key.

All kits take one step before any kit takes the next, so that they can receive each other during the
whole change. In the first step, each kit accepts both keys and sends with the old key. In the
second step, it sends with the new key. In the third step, it accepts only the new key.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from fieldagent.system.lazy_named_tuple import NamedTuple

if TYPE_CHECKING:
    from fieldagent.extensions.radio.mesh.neighbours import Neighbours


class KeyStep(IntEnum):
    NONE = 0
    """The kit has one key, or no key."""
    SENDS_OLD = 1
    SENDS_NEW = 2

    @classmethod
    def from_keys(cls, keys: Sequence[bytes], next_keys: Sequence[bytes]) -> KeyStep:
        """Return the step of the change, from the keys in `radio-key` and `radio-key-next` of the
        settings.
        """
        if next_keys:
            return cls.SENDS_OLD
        return cls.SENDS_NEW if len(keys) > 1 else cls.NONE


class GroupKeys(NamedTuple):
    """Keys for tags on the air (`wire.envelope.derive_key`, AIR)."""

    keys: Sequence[bytes] = ()
    """Keys that are accepted. The first key tags outgoing packets. If there is no key, packets have
    no tag."""
    dropped: Sequence[bytes] = ()
    """Old keys, which are no longer accepted. The status shows which stations still send with one
    of them."""


class KeyChange:
    def __init__(self, step: KeyStep, neighbours: Neighbours) -> None:
        self.step = step
        self._neighbours = neighbours

    def set_step(self, step: KeyStep) -> None:
        """Set the step after a change of keys, and forget which key each station used before."""
        self.step = step
        for each in self._neighbours.known.values():
            each.key = None

    def find_name(self, key: int | None) -> str | None:
        """Return the name of the key that tagged a packet, `old` or `new`, or None if there is only
        one key.
        """
        if self.step is KeyStep.NONE or key is None:
            return None
        return "new" if (key == 0) is (self.step is KeyStep.SENDS_NEW) else "old"

    def get_facts(self) -> dict[str, Any]:
        """Return the facts for the channel's status: the step, and the stations in range that send
        with each key.
        """
        if self.step is KeyStep.NONE:
            return {}
        stations: dict[str, list[int]] = {"old": [], "new": []}
        for number in sorted(self._neighbours.list_in_range()):
            if name := self.find_name(self._neighbours.known[number].key):
                stations[name].append(number)
        return {"keyChange": {"step": int(self.step), **stations}}

    def find_notice(self) -> str:
        """Return a notice for people while the keys are being changed, otherwise ''."""
        change = self.get_facts().get("keyChange")
        return describe_step(self.step, change["old"], change["new"]) if change else ""


def describe_step(
    step: KeyStep, old_key_stations: Sequence[int], new_key_stations: Sequence[int]
) -> str:
    """Return the step as a sentence for people. `old_key_stations` and `new_key_stations` are the
    stations that recently sent with the old and the new key.
    """
    if step is KeyStep.SENDS_OLD:
        heard_text = f"stations heard with the new key: {_join_names(new_key_stations)}"
        key_use = "sends with radio-key, and hears radio-key-next too"
        next_step = "once all kits are at this step, set radio-key to the new and the old key"
    else:
        heard_text = f"stations still heard with the old key: {_join_names(old_key_stations)}"
        key_use = "sends with the first key of radio-key, and hears the second too"
        next_step = "once all kits are at this step, remove the second key"
    return (
        f"the change of radio-key is at step {step:d} of 3: this kit {key_use}; {heard_text};"
        f" {next_step}"
    )


def _join_names(stations: Sequence[int]) -> str:
    if not stations:
        return "nobody"
    return ("station " if len(stations) == 1 else "stations ") + ", ".join(map(str, stations))
