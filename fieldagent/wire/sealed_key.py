"""Encrypts a group's new radio key for one kit, so that kits that relay the key cannot read it.

The radio key is sealed (`wire.seal`) with a key that is derived from a secret of the hub and the
kit. The secret is the device's 32-byte master key, otherwise the SHA-256 of its link token.
"""

from __future__ import annotations

from collections.abc import Iterable

from fieldagent.wire.envelope import derive_key
from fieldagent.wire.seal import is_sealed, seal, unseal

KEY_BYTES = 32


def seal_key(key: bytes, secret: bytes) -> bytes:
    """Encrypt the 32-byte `key`. The result has 41 bytes. `secret` is the same as for
    `proof.derive_proof_key`.
    """
    return seal(key, _derive_sealing_key(secret))


def open_key(body: bytes, secrets: Iterable[bytes]) -> bytes | None:
    """Decrypt a sealed key, and return it, or None if no secret matches."""
    keys = [_derive_sealing_key(each) for each in secrets]
    result = unseal(body, keys) if is_sealed(body) else None
    return None if result is None or len(result[0]) != KEY_BYTES else result[0]


def _derive_sealing_key(secret: bytes) -> bytes:
    return derive_key(secret, "radio-key")
