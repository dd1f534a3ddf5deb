"""Browsers in which somebody has signed in before: a cookie that the hub has signed says so.

It opens nothing. Its bearer has an allowance of their own for passwords and comes first in line, so
nobody who guesses elsewhere keeps them out. The key is in the database: the cookie holds after a
restart, and at every hub process.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable

import trio

from fieldagent.http.cookie import cookie_of, set_cookie
from fieldagent.http.message import Request
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.persist import AGAIN, told_once

COOKIE = "fieldagent-device"
LASTS = 400 * 86_400.0
"""Seconds: as long as browsers keep one (RFC 6265bis 5.5)."""
MARKS_MAX = 4
"""People who share a browser."""
KEY = "known devices"
_MARK = re.compile(r"([0-9a-f]{16})\.([0-9]{1,18})\.([0-9]{1,12})\.([0-9a-f]{32})")
"""Device, member, when it was signed, and the signature."""


class KnownDevices:
    """`clock` is Unix time."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._key: bytes | None = None

    async def load(self) -> None:
        """Make the key, or read the one that another process has made."""
        if self._key is None:
            self._key = await self._store.commit(lambda db: signing_key(db, KEY))

    async def load_soon(self) -> None:
        """Do as `load` does, as soon as the database answers."""
        while self._key is None:
            with told_once():
                await self.load()
                return
            await trio.sleep(AGAIN)

    def named_in(self, head: Request) -> dict[int, str]:
        """Return the name of the device for each member who has signed in from it; none before
        `load`."""
        devices: dict[int, str] = {}
        if self._key is None:
            return devices
        for mark in (cookie_of(head, COOKIE) or "").split("~")[:MARKS_MAX]:
            parts = _MARK.fullmatch(mark)
            if parts is None:
                continue
            device, member, signed, signature = parts.groups()
            right = self._signature(device, int(member), int(signed))
            if hmac.compare_digest(signature, right) and self._clock() < int(signed) + LASTS:
                devices.setdefault(int(member), device)
        return devices

    def voucher(self, head: Request) -> str:
        """Return who pays for a browser in which nobody is signed in now; empty for a stranger's.
        It is the member: each may have as many browsers as they like."""
        return next((f"member {member}" for member in self.named_in(head)), "")

    def cookie(self, head: Request, member: int, *, secure: bool) -> tuple[str, str]:
        """Return the header that makes this browser known for who has signed in now."""
        known = self.named_in(head)
        device = known.pop(member, None) or secrets.token_hex(8)
        marks = [self._mark(device, member)]
        marks += [self._mark(device, other) for other, device in known.items()]
        return set_cookie(COOKIE, "~".join(marks[:MARKS_MAX]), LASTS, secure=secure)

    def _mark(self, device: str, member: int) -> str:
        signed = int(self._clock())
        return f"{device}.{member}.{signed}.{self._signature(device, member, signed)}"

    def _signature(self, device: str, member: int, signed: int) -> str:
        assert self._key is not None
        said = f"{device}.{member}.{signed}".encode()
        return hmac.new(self._key, said, hashlib.sha256).hexdigest()[:32]


def signing_key(db: Db, name: str) -> bytes:
    """Return what all processes sign with for that purpose, made the first time."""
    db.execute(
        "INSERT INTO signing_key (name, key) VALUES (?, ?) ON CONFLICT DO NOTHING",
        *(name, secrets.token_bytes(32)),
    )
    ((key,),) = db.execute("SELECT key FROM signing_key WHERE name = ?", name)
    return bytes(key)
