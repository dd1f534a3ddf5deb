"""Checking passwords, which is dear on purpose: few at a time, few waiting, none twice.

A try is counted before scrypt runs and given back when the password was right. Equal tries at one
moment are one. A password that was right is known again for as long as the process runs and the
account keeps it: its owner passes while strangers guess.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import field

import trio

from fieldagent.hub import attempts
from fieldagent.hub.contract import number_of
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.scrypt import password_matches

AT_ONCE = 2
"""Each takes 16 MiB for a moment."""
WAITING = 16
"""Behind those: half a second, where a try takes 50 ms."""
KNOWN = 4_096
"""Passwords that were right, each 32 bytes here."""


@dataclass(slots=True)
class _Try:
    ended: trio.Event = field(default_factory=trio.Event)
    right: bool | None = None
    """None when it was not made."""


class Passwords:
    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._threads = trio.CapacityLimiter(AT_ONCE)
        self._seal_key = os.urandom(32)
        self._tries: dict[bytes, _Try] = {}
        self._right: OrderedDict[bytes, None] = OrderedDict()

    async def owner(
        self, username: str, password: str, source: str, *, signs_in: bool = False
    ) -> int | None:
        """The member whose password it is; None when it is wrong. One for one sign-in is nothing
        else. Raises Problem 429."""
        now = self._clock() if signs_in else None
        known = await self._store.read(lambda db: stored_password(db, username, now))
        member, stored = known or (None, None)
        seal = self._seal(username, password, stored)
        while seal not in self._right:
            if (same := self._tries.get(seal)) is None:
                account = f"user {member}" if known else f"name {_short_digest(username)}"
                right = await self._try(seal, password, stored, source, account)
                return member if right else None
            await same.ended.wait()
            if same.right is False:
                return None
        self._right.move_to_end(seal)
        return member

    async def _try(
        self, seal: bytes, password: str, stored: str | None, source: str, account: str
    ) -> bool:
        if len(self._tries) >= AT_ONCE + WAITING:
            raise attempts.too_many("too many passwords are being checked at this moment", 1)
        self._tries[seal] = this = _Try()
        try:
            now = self._clock()
            if problem := await self._store.commit(
                lambda db: attempts.reserve(db, source, account, now)
            ):
                raise problem
            this.right = await trio.to_thread.run_sync(
                password_matches, password, stored, limiter=self._threads
            )
        finally:
            del self._tries[seal]
            this.ended.set()
        if this.right:
            self._remember(seal)
            await self._store.commit(lambda db: attempts.give_back(db, source, account))
        return this.right

    def _remember(self, seal: bytes) -> None:
        self._right[seal] = None
        if len(self._right) > KNOWN:
            self._right.popitem(last=False)

    def _seal(self, username: str, password: str, stored: str | None) -> bytes:
        """Tells one try from another, and nothing to who reads this process's memory later."""
        seal = hashlib.blake2b(key=self._seal_key, digest_size=32)
        for part in (username, password, stored or ""):
            text = part.encode("utf-8", "replace")
            seal.update(len(text).to_bytes(4, "big") + text)
        return seal.digest()


def stored_password(
    db: Db, username: str, signs_in: float | None = None
) -> tuple[int, str | None] | None:
    """The member of that number or e-mail address, with the hash of the password; one for one
    sign-in counts for who `signs_in` at that time alone."""
    rows = db.execute(
        "SELECT id, password, password_until FROM member WHERE disabled IS NULL AND"
        " (id = ? OR (email = ? AND email <> ''))",
        number_of(username) or -1,
        username,
    )
    if not rows:
        return None
    member, stored, until = rows[0]
    usable = until is None or (signs_in is not None and signs_in < until)
    return int(member), stored if usable else None


def _short_digest(username: str) -> str:
    return hashlib.sha256(username.encode("utf-8", "replace")).hexdigest()[:32]
