"""Unauthenticated calls for help. Such a call raises no alarm, but people see it for an hour."""

from __future__ import annotations

from dataclasses import field

from fieldagent.extensions.people.contract import shorten_handle
from fieldagent.extensions.people.directory import Holder
from fieldagent.system.lazy_dataclass import dataclass

SHOWN_FOR_S = 3600.0
"""Seconds for which people see a call."""
CALLERS_MAX = 100
IN_DISTRESS = (
    "{who} ({handle}) reports distress, {caveat}: no alarm, because mesh-sos does not name"
    " it. Check whether it is true"
)

FROM_AFAR = (
    "{who} ({handle}) reports distress over the Internet: no alarm. Check whether it is true"
)


@dataclass(slots=True)
class UnauthenticatedCalls:
    """Recent unauthenticated calls. `now` is elapsed time."""

    _heard_calls: dict[str, tuple[float, str]] = field(default_factory=dict)

    def add_call(self, handle: str, now: float, notice: str = IN_DISTRESS) -> None:
        self._heard_calls.pop(handle, None)
        self._heard_calls[handle] = now, notice
        if len(self._heard_calls) > CALLERS_MAX:
            del self._heard_calls[next(iter(self._heard_calls))]

    def list_calls(self, now: float) -> list[tuple[str, str]]:
        """Return the radios that called within `SHOWN_FOR_S` seconds. Each has the notice about its
        call.
        """
        return [
            (handle, notice)
            for handle, (at, notice) in self._heard_calls.items()
            if now < at + SHOWN_FOR_S
        ]


def make_distress_notice(person: Holder, template: str = IN_DISTRESS) -> str:
    """Return the notice that people see. It contains the caller and what to do."""
    handle = shorten_handle(person.handle)
    return template.format(who=person.name, handle=handle, caveat=person.caveat)
