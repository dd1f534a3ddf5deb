"""Passwords as they are kept: people choose them, so scrypt (RFC 7914) makes guessing dear."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

_N, _R, _P = 2**14, 8, 1
"""RFC 7914 section 2: 16 MiB and some 50 ms for each guess."""
SCRYPT_SECONDS = 0.05
"""Those, of a processor that is neither quick nor slow: what a wrong one is charged, on each."""
_DUMMY = "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$" + base64.b64encode(bytes(32)).decode()


def hash_password(password: str) -> str:
    """Return what is stored of a password, with a salt of its own. It takes some 50 ms of a
    processor: not for the event loop."""
    salt = secrets.token_bytes(16)
    parts = (
        base64.b64encode(part).decode() for part in (salt, _scrypt(password, salt, _N, _R, _P))
    )
    return "$".join(("scrypt", str(_N), str(_R), str(_P), *parts))


def check_password(password: str, stored: str | None) -> bool:
    """Return whether it is the stored one; this takes as long for somebody without a password as
    for one with another."""
    _, n, r, p, salt, expected = (stored or _DUMMY).split("$")
    digest = _scrypt(password, base64.b64decode(salt), int(n), int(r), int(p))
    return hmac.compare_digest(digest, base64.b64decode(expected)) and stored is not None


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    text = password.encode("utf-8", "replace")
    work = partial(hashlib.scrypt, text, salt=salt, n=n, r=r, p=p, maxmem=2**26, dklen=32)
    return _threads().submit(work).result()


@cache
def _threads() -> ThreadPoolExecutor:
    """Two for all: glibc keeps for each thread what that has once had, and callers have many."""
    return ThreadPoolExecutor(2)
