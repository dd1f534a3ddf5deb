"""Stores passwords with scrypt (RFC 7914), which makes guessing expensive, because people choose
weak passwords.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

_N, _R, _P = 2**14, 8, 1
"""Parameters of RFC 7914 section 2: 16 MiB and about 50 ms per guess."""
SCRYPT_SECONDS = 0.05
"""CPU seconds that the check of a password takes on an average machine. A wrong password is charged
with this time on every machine."""
_DUMMY = "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$" + base64.b64encode(bytes(32)).decode()


def hash_password(password: str) -> str:
    """Return the hash to store for a password, with a new salt. This takes about 50 ms of CPU, so
    it must not run in the event loop.
    """
    salt = secrets.token_bytes(16)
    parts = (
        base64.b64encode(part).decode() for part in (salt, _run_scrypt(password, salt, _N, _R, _P))
    )
    return "$".join(("scrypt", str(_N), str(_R), str(_P), *parts))


def check_password(password: str, stored: str | None) -> bool:
    """Return True if the password matches. The check of a user without a password takes as long as
    the check of a wrong password.
    """
    _, n, r, p, salt, expected = (stored or _DUMMY).split("$")
    digest = _run_scrypt(password, base64.b64decode(salt), int(n), int(r), int(p))
    return hmac.compare_digest(digest, base64.b64decode(expected)) and stored is not None


def _run_scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    text = password.encode("utf-8", "replace")
    work = partial(hashlib.scrypt, text, salt=salt, n=n, r=r, p=p, maxmem=2**26, dklen=32)
    return _get_threads().submit(work).result()


@cache
def _get_threads() -> ThreadPoolExecutor:
    """Return the shared pool of two threads. More threads would need more memory, because glibc
    keeps the memory that each thread once used.
    """
    return ThreadPoolExecutor(2)
