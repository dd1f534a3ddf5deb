"""Secrets and keys that the hub shares with a kit."""

from __future__ import annotations

from fieldagent.hub.store.contract import Db
from fieldagent.wire.envelope import derive_key
from fieldagent.wire.proof import derive_proof_key


def read_mo_keys(db: Db, device: int) -> list[bytes]:
    """Return the keys that may have tagged the device's satellite messages. The list is empty if
    its messages have no tag.
    """
    master = read_air_key(db, device)
    return [] if master is None else [derive_key(master, "MO")]


def derive_proof_keys(db: Db, device: int) -> list[bytes]:
    """Return the keys that authenticate incident updates, in the order of `read_secrets`."""
    return [derive_proof_key(secret) for secret in read_secrets(db, device)]


def read_secrets(db: Db, device: int) -> list[bytes]:
    """Return the secrets shared with this kit: its satellite key if it has one, and the SHA-256 of
    its link token.
    """
    rows = db.execute("SELECT air_key, link_token FROM device WHERE id = ?", device)
    secrets = [bytes(key) for key, _ in rows if key is not None]
    return [*secrets, *(bytes.fromhex(token) for _, token in rows if token)]


def read_air_key(db: Db, device: int) -> bytes | None:
    """Return the device's satellite key, or None if it has no key."""
    rows = db.execute("SELECT air_key FROM device WHERE id = ?", device)
    return bytes(rows[0][0]) if rows and rows[0][0] is not None else None
