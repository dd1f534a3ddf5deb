"""Parcels: messages between the hub and a kit, which another kit relays by radio.

The hub and the kit have a secret that no one else has. The secret is the device's `satellite-key`,
otherwise its link token, of which the hub stores the SHA-256. A kit that relays a parcel can read
the parcel but cannot make one (`docs/reference/on-air.md`, "Parcels").
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
"""Directions: from the hub to a kit, and from a kit to the hub. Each direction has its own key, so
that no kit can send back a parcel as a forged answer."""
BODY_MAX_BYTES = 1200
"""Maximum bytes of a parcel that can be sent by radio."""


def wrap(entries: Sequence[Entry], secret: bytes, direction: str, *, origin: int = 0) -> bytes:
    """Return the body of a parcel. `secret` is the same as for
    `proof.derive_proof_key`."""
    return encode(entries, origin=origin, key=derive_key(secret, direction))


def unwrap(body: bytes, secrets: Iterable[bytes], direction: str) -> Envelope:
    """Return the contents of a parcel. Raises RemoteProtocolError if the parcel is damaged, and
    Unauthenticated if no secret matches.
    """
    keys = [derive_key(each, direction) for each in secrets]
    if not keys:
        raise Unauthenticated(missing=False)
    return decode(body, keys=keys)
