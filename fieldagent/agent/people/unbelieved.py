"""Calls for help that ring nobody, as nothing proves them: people see them for an hour."""

from __future__ import annotations

from dataclasses import field

from fieldagent.agent.people.contract import in_short
from fieldagent.agent.people.directory import Holder
from fieldagent.system.lazy_dataclass import dataclass

SHOWN_FOR = 3600.0
"""Seconds."""
MOST = 100
IN_DISTRESS = (
    "{who} ({handle}) says that it is in distress, {caveat}: that rings nobody, as mesh-sos does"
    " not name it. Find out whether it is so"
)


@dataclass(slots=True)
class Unbelieved:
    """`now` is lived time."""

    _heard: dict[str, float] = field(default_factory=dict)

    def note(self, handle: str, now: float) -> None:
        self._heard.pop(handle, None)
        self._heard[handle] = now
        if len(self._heard) > MOST:
            del self._heard[next(iter(self._heard))]

    def handles(self, now: float) -> list[str]:
        """Return the radios that were heard within SHOWN_FOR seconds and are not believed."""
        return [handle for handle, at in self._heard.items() if now < at + SHOWN_FOR]


def in_distress(person: Holder) -> str:
    """Return who calls, and what to do, for people."""
    handle = in_short(person.handle)
    return IN_DISTRESS.format(who=person.name, handle=handle, caveat=person.caveat)
