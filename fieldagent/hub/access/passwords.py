"""Checks passwords. A check is expensive on purpose, so only a few checks run and wait at a time,
and no check runs twice.

An attempt is counted before scrypt runs. If the password was right, the count is undone.
Simultaneous attempts with the same name and password share one check. The process remembers a hash
of each right password until the process ends or the account gets another password. So the owner can
sign in while attackers guess. In the waiting line, browsers in which the owner has signed in before
come first. Then come the sources with the fewest failures.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from functools import partial
from itertools import count

import trio

from fieldagent.http.limits import check_in_thread
from fieldagent.http.problem import Problem
from fieldagent.hub.access import attempts
from fieldagent.hub.contract import parse_id
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.scrypt import SCRYPT_SECONDS, check_password

Claim = tuple[float, ...]
"""Priority in the line. A lower claim comes first. Equal claims keep their order of arrival."""


@dataclass(slots=True, eq=False)
class _WaitingCaller:
    claim: Claim
    number: int
    called: trio.Event = field(default_factory=trio.Event)
    dropped: bool = False

    @property
    def order(self) -> tuple[Claim, int]:
        return self.claim, self.number


class Crowded(Exception):
    """Error: the line is full of callers with a higher priority."""


class WaitingLine:
    """A waiting line for expensive work. At most `places` callers work at a time, and at most
    `waiting` callers wait in the order of their priority.
    """

    def __init__(self, places: int, waiting: int) -> None:
        self._free = places
        self._waiting_max = waiting
        self._line: list[_WaitingCaller] = []
        self._numbers = count()

    @asynccontextmanager
    async def wait_for_place(self, claim: Claim) -> AsyncIterator[None]:
        """Wait for a place and hold it within the block. Raises Crowded if callers with lower
        claims fill the line, now or during the wait.
        """
        if self._free:
            self._free -= 1
        else:
            await self._wait(_WaitingCaller(claim, next(self._numbers)))
        try:
            yield
        finally:
            self._free += 1
            self._call_next()

    async def _wait(self, me: _WaitingCaller) -> None:
        self._line.append(me)
        if len(self._line) > self._waiting_max:
            worst = max(self._line, key=lambda each: each.order)
            self._line.remove(worst)
            worst.dropped = True
            worst.called.set()
        try:
            await me.called.wait()
        except BaseException:
            if me in self._line:
                self._line.remove(me)
            elif not me.dropped:  # This caller already had a place: pass the place on.
                self._free += 1
                self._call_next()
            raise
        if me.dropped:
            raise Crowded

    def _call_next(self) -> None:
        if self._line and self._free:
            self._free -= 1
            first = min(self._line, key=lambda each: each.order)
            self._line.remove(first)
            first.called.set()


CHECKS_MAX = 2
"""Largest number of simultaneous checks. Each check needs 16 MiB of memory while it runs."""
WAITING_CHECKS_MAX = 64
"""Largest number of waiting checks. The last of them waits about 2 s, because a check takes 50
ms."""
KNOWN_PASSWORDS_MAX = 4_096
"""Largest number of right passwords that the process remembers. Each takes 32 bytes."""

NONE: Mapping[int, str] = {}
Reserve = Callable[..., "attempts.ReservedAttempt | Problem"]


@dataclass(slots=True)
class _Attempt:
    ended: trio.Event = field(default_factory=trio.Event)
    is_right: bool | None = None
    """True if the password was right; None if it was not checked."""


class Passwords:
    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._threads = trio.CapacityLimiter(CHECKS_MAX)
        self._line = WaitingLine(CHECKS_MAX, WAITING_CHECKS_MAX)
        self._seal_key = os.urandom(32)
        self._tries: dict[tuple[bytes, str], _Attempt] = {}
        self._right: OrderedDict[bytes, None] = OrderedDict()

    async def find_owner(
        self,
        username: str,
        password: str,
        source: str,
        *,
        signs_in: bool = False,
        devices: Mapping[int, str] = NONE,
    ) -> int | None:
        """Return the member with this name and password, or None if the password is wrong. A
        one-time password is valid only if `signs_in` is True. `devices` contains the name of the
        caller's browser for each member who has signed in from it. Raises Problem 429.
        """
        now = self._clock() if signs_in else None
        stored_password = await self._store.read(lambda db: find_stored_password(db, username, now))
        member, stored = stored_password or (None, None)
        seal = self._seal(username, password, stored)
        device = devices.get(member or 0, "")
        while seal not in self._right:
            if (same_try := self._tries.get((seal, device))) is None:
                account = (
                    f"user {member}" if stored_password else f"name {_make_short_digest(username)}"
                )
                reserve = partial(
                    attempts.reserve_attempt, source=source, account=account, device=device
                )
                right = await self._try(seal, password, stored, device, reserve)
                return member if right else None
            await same_try.ended.wait()
            if same_try.is_right is False:
                return None
        self._right.move_to_end(seal)
        return member

    async def _try(
        self, seal: bytes, password: str, stored_hash: str | None, device: str, reserve: Reserve
    ) -> bool:
        self._tries[seal, device] = this = _Attempt()
        try:
            now = self._clock()
            reserved = await self._store.commit(lambda db: reserve(db, now=now))
            if isinstance(reserved, Problem):
                raise reserved
            await waits.sleep(reserved.delay)
            async with self._line.wait_for_place((not device, reserved.debt_s)):
                matches = partial(check_password, password, stored_hash)
                this.is_right = await check_in_thread(matches, self._threads, SCRYPT_SECONDS)
        except Crowded:
            refusal = "the hub is checking too many passwords at the moment"
            raise attempts.make_too_many_problem(refusal, 1) from None
        finally:
            del self._tries[seal, device]
            this.ended.set()
        if this.is_right:
            self._remember(seal)
            await self._store.commit(lambda db: attempts.cancel_reservation(db, reserved))
        return this.is_right

    def _remember(self, seal: bytes) -> None:
        self._right[seal] = None
        if len(self._right) > KNOWN_PASSWORDS_MAX:
            self._right.popitem(last=False)

    def _seal(self, username: str, password: str, stored_hash: str | None) -> bytes:
        """Return a keyed hash of a name, a password and the stored hash. It does not reveal the
        password to a person who later reads the memory of this process.
        """
        seal = hashlib.blake2b(key=self._seal_key, digest_size=32)
        for part in (username, password, stored_hash or ""):
            text = part.encode("utf-8", "replace")
            seal.update(len(text).to_bytes(4, "big") + text)
        return seal.digest()


def find_stored_password(
    db: Db, username: str, signs_in: float | None = None
) -> tuple[int, str | None] | None:
    """Return the member with this id or email address, and the hash of the member's password. A
    one-time password is returned only for a sign-in. `signs_in` is the Unix time of the sign-in, or
    None for another call.

    `add_user` stores addresses in lower case. Older rows may contain capital letters.
    """
    rows = db.execute(
        "SELECT id, password, password_until FROM member WHERE disabled IS NULL AND"
        " (id = ? OR (email IN (?, ?) AND email <> '')) ORDER BY email = ? DESC",
        *(parse_id(username) or -1, username, username.lower(), username),
    )
    if not rows:
        return None
    member, stored, until = rows[0]
    usable = until is None or (signs_in is not None and signs_in < until)
    return int(member), stored if usable else None


def _make_short_digest(username: str) -> str:
    return hashlib.sha256(username.encode("utf-8", "replace")).hexdigest()[:32]
