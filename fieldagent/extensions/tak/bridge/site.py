"""Where the bridge works, as the bridge sees it: a team's TAK server, or the hub's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import NoReturn, Protocol, TypeAlias

from fieldagent.extensions.tak.bridge.records import TakPerson
from fieldagent.extensions.tak.cot import CotEvent
from fieldagent.extensions.tak.events import TakUnit
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple


class TakSession(Protocol):
    """What one user says there, and hears. Raises Lost once that is over."""

    async def run(self, take: Callable[[str, bytes], None]) -> NoReturn:
        """Hand each event with its type to `take`, until cancelled."""
        ...

    async def say(self, events: Iterable[CotEvent]) -> None:
        """Send events; return once the server has taken them."""
        ...


class FindPerson(Protocol):
    """Return whose phone that is; None where it is nobody's. `now` is Unix time."""

    def __call__(
        self, db: Db, workspace: int, callsign: str, uid: str, now: float
    ) -> TakPerson | None: ...


class TakSite(NamedTuple):
    title: str
    """What the log calls it."""
    connect: Callable[[TakUnit], AbstractAsyncContextManager[TakSession]]
    """Opens a user's session. Raises Lost."""
    person_of: FindPerson
    has: Callable[[str], bool] = lambda uid: True
    """Whether it hands on what is for this phone, as far as anybody can know."""


OpenSite: TypeAlias = Callable[[int], AbstractAsyncContextManager[TakSite]]
"""Opens it for a workspace."""
