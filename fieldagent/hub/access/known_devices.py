"""Recognises browsers in which someone has signed in before, by a signed cookie.

The cookie gives no access. It gives its owner a separate count of failed attempts and the first
place in the waiting line. So an attacker who guesses passwords in another browser cannot keep the
owner out. The signing key is in the database, so the cookie remains valid after a restart and for
every hub process.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable

import trio

from fieldagent.http.headers import read_cookie, set_cookie
from fieldagent.http.message import Request
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.persist import RETRY_AFTER_S, skip_if_unavailable

COOKIE = "fieldagent-device"
COOKIE_LIFETIME_S = 400 * 86_400.0
"""Seconds for which the cookie is valid, the longest time that browsers keep one (RFC 6265bis
5.5)."""
MARKS_MAX = 4
"""Largest number of members who have a mark in one cookie. A mark shows that the member has signed
in from this browser."""
KEY = "known devices"
_MARK = re.compile(r"([0-9a-f]{16})\.([0-9]{1,18})\.([0-9]{1,12})\.([0-9a-f]{32})")
"""Pattern of a mark: device, member, time of the signature, signature."""


class KnownDevices:
    """Reads and writes the cookie. `clock` returns Unix time."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._key: bytes | None = None

    async def load(self) -> None:
        """Create the signing key, or read the key that another process has created."""
        if self._key is None:
            self._key = await self._store.commit(lambda db: read_signing_key(db, KEY))

    async def load_soon(self) -> None:
        """Wait until the database is available, then load the key."""
        while self._key is None:
            with skip_if_unavailable():
                await self.load()
                return
            await trio.sleep(RETRY_AFTER_S)

    def list_devices_by_member(self, head: Request) -> dict[int, str]:
        """Return the device name for each member who has signed in from this browser. The result is
        empty before `load`.
        """
        devices: dict[int, str] = {}
        if self._key is None:
            return devices
        for mark in (read_cookie(head, COOKIE) or "").split("~")[:MARKS_MAX]:
            parts = _MARK.fullmatch(mark)
            if parts is None:
                continue
            device, member, signed, signature = parts.groups()
            right = self._compute_signature(device, int(member), int(signed))
            if (
                hmac.compare_digest(signature, right)
                and self._clock() < int(signed) + COOKIE_LIFETIME_S
            ):
                devices.setdefault(int(member), device)
        return devices

    def find_pace_key(self, head: Request) -> str:
        """Return the key under which the CPU time of a known browser is limited while no one is
        signed in. The key names the member of the newest mark, because a member can use any number
        of browsers. It is empty if the browser is unknown.
        """
        return next((f"member {member}" for member in self.list_devices_by_member(head)), "")

    def make_cookie(self, head: Request, member: int, *, secure: bool) -> tuple[str, str]:
        """Return the header that marks this browser as known for the member, who has just signed
        in.
        """
        devices_by_member = self.list_devices_by_member(head)
        device = devices_by_member.pop(member, None) or secrets.token_hex(8)
        marks = [self._mark(device, member)]
        marks += [self._mark(device, other) for other, device in devices_by_member.items()]
        return set_cookie(COOKIE, "~".join(marks[:MARKS_MAX]), COOKIE_LIFETIME_S, secure=secure)

    def _mark(self, device: str, member: int) -> str:
        signed = int(self._clock())
        return f"{device}.{member}.{signed}.{self._compute_signature(device, member, signed)}"

    def _compute_signature(self, device: str, member: int, signed: int) -> str:
        assert self._key is not None
        signed_text = f"{device}.{member}.{signed}".encode()
        return hmac.new(self._key, signed_text, hashlib.sha256).hexdigest()[:32]


def read_signing_key(db: Db, name: str) -> bytes:
    """Return the key with which all processes sign for the purpose `name`. The first call creates
    the key.
    """
    db.execute(
        "INSERT INTO signing_key (name, key) VALUES (?, ?) ON CONFLICT DO NOTHING",
        *(name, secrets.token_bytes(32)),
    )
    ((key,),) = db.execute("SELECT key FROM signing_key WHERE name = ?", name)
    return bytes(key)
