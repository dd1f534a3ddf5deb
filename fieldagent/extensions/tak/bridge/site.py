"""Server to which the bridge connects: a team's TAK server, or the hub's own server."""

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
    """Session of one user at the server. Its methods raise ConnectionLost when the session has
    ended.
    """

    async def run(self, handle_event: Callable[[str, bytes], None]) -> NoReturn:
        """Pass each event with its type to `handle_event`, until cancelled."""
        ...

    async def send_events(self, events: Iterable[CotEvent]) -> None:
        """Send events. Return when the server has accepted them."""
        ...


class FindPerson(Protocol):
    """Function that finds the user of a phone. It returns None if the phone is unknown. `now` is
    Unix time.
    """

    def __call__(
        self, db: Db, workspace: int, callsign: str, uid: str, now: float
    ) -> TakPerson | None: ...


class TakSite(NamedTuple):
    title: str
    """Name of the server in the log."""
    connect: Callable[[TakUnit], AbstractAsyncContextManager[TakSession]]
    """Opens a user's session. Raises ConnectionLost if the server cannot be reached."""
    person_of: FindPerson
    has: Callable[[str], bool] = lambda uid: True
    """Returns True if, as far as the hub knows, the server passes events on to the phone with this
    uid."""


OpenSite: TypeAlias = Callable[[int], AbstractAsyncContextManager[TakSite]]
"""Opens the server for a workspace, which is given by its id."""
