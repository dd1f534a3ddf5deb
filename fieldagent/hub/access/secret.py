"""Secrets of callers. The hub creates a secret, shows it once, and stores only its hash.

Keys and tokens are random and long, so SHA-256 is sufficient. For passwords that people choose, the
hub uses `system.scrypt`.
"""

from __future__ import annotations

import base64
import hashlib
import secrets


def make_secret(prefix: str) -> str:
    """Return 256 random bits after a prefix. The prefix shows the purpose of the secret to people
    and to secret scanners.
    """
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def make_password() -> str:
    """Return a password of 80 random bits in a form that people can read aloud."""
    text = base64.b32encode(secrets.token_bytes(10)).decode().lower()
    return "-".join(text[place : place + 4] for place in range(0, 16, 4))


def hash_for_lookup(secret: str) -> str:
    """Return the SHA-256 that is stored for a key or token, in hexadecimal."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def make_air_key() -> bytes:
    """Return a new master key for a device's satellite messages: `satellite-key` in its
    settings.
    """
    return secrets.token_bytes(32)
