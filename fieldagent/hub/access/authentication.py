"""Authenticates callers from the head of a request, so that the hub does not read the body of an
anonymous request.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from fieldagent.http.address import LOOPBACK_NETWORKS, Network, find_source, is_in
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.access import attempts, sessions
from fieldagent.hub.access.caller import (
    Call,
    Caller,
    Proof,
    Purpose,
    authorize_calls,
    find_address,
    find_objection,
    is_key_known,
    make_unauthorized,
    read_proof,
)
from fieldagent.hub.access.known_devices import KnownDevices
from fieldagent.hub.access.passwords import Passwords
from fieldagent.hub.store.contract import Store

log = logging.getLogger(__name__)

_WRONG_TEXT = "the key, or the token or password beside it, is wrong or expired"


class Authentication:
    """Authenticates requests. `clock` returns Unix time."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float],
        trusted_proxies: Sequence[Network] = (),
    ) -> None:
        self._store = store
        self._clock = clock
        self._trusted = trusted_proxies
        self._has_warned_of_proxy = False
        self._passwords = Passwords(store, clock)
        self.devices = KnownDevices(store, clock)

    def judge(self, purpose: Purpose) -> Callable[[Request], Awaitable[Caller]]:
        """Return a function that admits requests for `purpose` and returns their caller."""
        return partial(self.authenticate, purpose=purpose)

    async def authenticate(self, head: Request, purpose: Purpose) -> Caller:
        """Return the caller. Raises Problem if the caller is anonymous or not allowed."""
        now = self._clock()
        source = find_source(find_address(head, self._trusted))
        self._warn_of_proxy(head)
        token = sessions.read_token(head)
        keyless = "x-api-key" not in head.headers
        if keyless and (token is not None or sessions.is_same_site(head)):
            # Send no challenge, because the browser would then open its own password dialog.
            return await self._find_signed_in(head, token or "", purpose, now)
        proof = read_proof(head.headers)
        member = await self._find_member(proof, source, now)
        verdict = await self._store.read_together(
            authorize_calls, Call(proof, member, now, purpose)
        )
        if verdict is None:
            raise await self._count_wrong_secret(source, now)
        if isinstance(verdict, Problem):
            raise verdict
        return verdict

    async def _find_signed_in(
        self, head: Request, token: str, purpose: Purpose, now: float
    ) -> Caller:
        """Return the caller who has signed in at the console. The cookie alone is not sufficient,
        because another site can make the browser send a request with the cookie.
        """
        if head.method not in ("GET", "HEAD") and not sessions.is_same_site(head):
            raise Problem(403, "the console's cookie is for the console's own calls")
        caller = await self._store.read(lambda db: sessions.find_caller(db, token, now))
        if caller is None:
            raise Problem(401, "the session is over: sign in again")
        if problem := find_objection(caller, purpose):
            raise problem
        return caller

    async def find_password_owner(self, head: Request, username: str, password: str) -> int:
        """Return the member with this name and password, for a sign-in. Raises Problem 401 or
        429.
        """
        source = find_source(find_address(head, self._trusted))
        await self.devices.load()
        member = await self._passwords.find_owner(
            username,
            password,
            f"passwords {source}",
            signs_in=True,
            devices=self.devices.list_devices_by_member(head),
        )
        if member is None:
            raise Problem(401, "name or password is wrong")
        return member

    async def count_wrong_link_token(self, head: Request) -> Problem:
        """Count a wrong link token, separately from wrong keys. A right token is always accepted,
        even after many wrong attempts from the same source.
        """
        bearer = (("WWW-Authenticate", "Bearer"),)
        refusal = Problem(401, "no device has this link token", headers=bearer)
        return await self.count_failure(head, "links", refusal)

    async def count_failure(self, head: Request, secret_kind: str, refusal: Problem) -> Problem:
        """Count a failed attempt of the caller. Each kind of secret, `secret_kind`, has a separate
        count. Return `refusal`, or the Problem 429 if there were too many attempts.
        """
        source, now = (
            f"{secret_kind} {find_source(find_address(head, self._trusted))}",
            self._clock(),
        )
        if problem := await self._store.read(lambda db: attempts.find_block(db, source, now)):
            return problem
        await self._store.commit(lambda db: attempts.count_failure(db, source, now))
        return refusal

    async def _find_member(self, proof: Proof, source: str, now: float) -> int | None:
        """Return the member with the name and password in `proof`. Return None if a token
        identifies the caller. Passwords are checked only for callers with a valid key.
        """
        if proof.token is not None:
            return None
        if not await self._store.read(lambda db: is_key_known(db, proof, now)):
            raise await self._count_wrong_secret(source, now)
        # Count passwords separately from keys, so that an attacker who guesses keys cannot lock out
        # users who have a key.
        limit_key = f"passwords {source}"
        member = await self._passwords.find_owner(proof.username, proof.password, limit_key)
        if member is None:
            raise make_unauthorized(_WRONG_TEXT)
        return member

    def _warn_of_proxy(self, head: Request) -> None:
        """Log a warning once if a proxy on this machine forwards the request and `trusted-proxies`
        is not set. All callers behind such a proxy count as one source.
        """
        if self._has_warned_of_proxy or self._trusted or "x-forwarded-for" not in head.headers:
            return
        if is_in(head.peer, LOOPBACK_NETWORKS):
            self._has_warned_of_proxy = True
            log.warning(
                "a proxy on this machine sends X-Forwarded-For, and trusted-proxies is not set:"
                " all clients behind it count as one address and share its limits; set"
                " trusted-proxies=127.0.0.1/32 ::1/128"
            )

    async def _count_wrong_secret(self, source: str, now: float) -> Problem:
        """Count the failure and return the Problem 401, or return the Problem 429 if the source is
        blocked already. A right secret is accepted even from a blocked source, because other
        callers may share its address.
        """
        if problem := await self._store.read(lambda db: attempts.find_block(db, source, now)):
            return problem
        await self._store.commit(lambda db: attempts.count_failure(db, source, now))
        return make_unauthorized(_WRONG_TEXT)
