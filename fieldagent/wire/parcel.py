"""Wraps what the hub and a kit say to each other by way of another kit's radio.

Both hold a secret that nobody else has: the device's `satellite-key`, or else its link token, of
which the hub keeps the SHA-256. Who carries a parcel can read it and make none
(`docs/reference/on-air.md`, "Parcels").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fieldagent.wire.envelope import (
    Entry,
    Envelope,
    Unauthenticated,
    decode,
    derive_key,
    encode,
)

DOWN, UP = "DOWN", "UP"
"""From the hub to a kit, and back: each direction has a key, so that none is handed back."""
BODY_MAX = 1200
"""Bytes: what takes more goes round on no air."""


def wrap(entries: Sequence[Entry], secret: bytes, direction: str, *, origin: int = 0) -> bytes:
    """Return the body of a parcel. `secret` is as `incident_proof.proof_key` takes it."""
    return encode(entries, origin=origin, key=derive_key(secret, direction))


def unwrap(body: bytes, secrets: Iterable[bytes], direction: str) -> Envelope:
    """Return what it says. Raises RemoteProtocolError where it is damaged, and Unauthenticated
    where none of the secrets made it, or there is none."""
    keys = [derive_key(each, direction) for each in secrets]
    if not keys:
        raise Unauthenticated(missing=False)
    return decode(body, keys=keys)
