"""Link that signs a person in at the console of the demo. It works once and only on this
machine.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from fieldagent.http.address import LOOPBACK_NETWORKS, is_in
from fieldagent.http.headers import set_cookie
from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.hub.access import sessions
from fieldagent.hub.store.contract import Store
from fieldagent.system.lazy_named_tuple import NamedTuple

PATH = "/console/enter/{token}"


class Guest(NamedTuple):
    """Member and workspace of the guest, and the secret in the link."""

    token: str
    member: int
    workspace: int


class GuestLink:
    """Link for the guest of a hub. `clock` returns Unix time."""

    def __init__(self, guest: Guest, store: Store, clock: Callable[[], float]) -> None:
        self._guest: Guest | None = guest
        self._store = store
        self._clock = clock

    def make_route(self) -> Route:
        """Return the route that opens the console for a guest."""
        return Route("GET", PATH, self.enter)

    async def enter(self, request: Request, token: str) -> Response:
        """Open the console for a guest. A HEAD request, for example from a preview, does not use up
        the link.
        """
        guest, is_local = self._guest, is_in(request.peer, LOOPBACK_NETWORKS)
        proxied = any(name.startswith(("forwarded", "x-forwarded")) for name in request.headers)
        if guest is None:
            raise Problem(410, "this link has been used to sign in: sign in with the password now")
        if not is_local or proxied or not hmac.compare_digest(token.encode(), guest.token.encode()):
            raise Problem(404, "this link does not sign you in")
        headers: tuple[tuple[str, str], ...] = (("Location", "/console"),)
        if request.method == "GET":
            self._guest = None
            session = await self._store.commit(
                lambda db: sessions.begin_session(db, guest.member, guest.workspace, self._clock())
            )
            headers += (
                set_cookie(sessions.COOKIE, session, sessions.SESSION_LIFETIME_S, secure=False),
            )
        return Response(303, headers=headers)
