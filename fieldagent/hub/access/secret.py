"""What proves who calls: made here, shown once, kept as a hash.

Keys and tokens are random and long, so that SHA-256 does; for people's own passwords there is
`system.scrypt`.
"""

from __future__ import annotations

import base64
import hashlib
import secrets


def new_secret(prefix: str) -> str:
    """Return 256 random bits, behind a prefix that tells people (and scanners) what it is for."""
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def new_password() -> str:
    """Return 80 random bits, as people read them to each other."""
    text = base64.b32encode(secrets.token_bytes(10)).decode().lower()
    return "-".join(text[place : place + 4] for place in range(0, 16, 4))


def lookup(secret: str) -> str:
    """Return what is stored of a key or token."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def new_air_key() -> bytes:
    """Return the master key of a device's satellite messages: `satellite-key` in its settings."""
    return secrets.token_bytes(32)
