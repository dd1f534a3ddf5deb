"""Proves that the hub has given a command, to the one kit that it is for.

Both hold a secret that nobody else has: the device's `satellite-key`, or else its link token, of
which the hub keeps the SHA-256. Whoever carries a command, and whoever holds `radio-key`, cannot
make such a proof. It says nothing of which person gave it: that is in the hub's audit log.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import replace

import cbor2

from fieldagent.wire.command import RemoteCommand
from fieldagent.wire.envelope import derive_key
from fieldagent.wire.tag import TAG_BYTES


def command_key(secret: bytes) -> bytes:
    """Return the key for proofs. `secret` is a device's 32-byte master key (`satellite-key`), or
    the `incident_proof.token_digest` of its link token."""
    return derive_key(secret, "command")


def prove(number: int, command: RemoteCommand, key: bytes) -> RemoteCommand:
    """Return the command of that number with its proof."""
    return replace(command, proof=_proof(number, command, key))


def is_proved(number: int, command: RemoteCommand, keys: Iterable[bytes]) -> bool:
    """Return whether a holder of one of the keys has given this command under this number."""
    return any(hmac.compare_digest(_proof(number, command, key), command.proof) for key in keys)


def _proof(number: int, command: RemoteCommand, key: bytes) -> bytes:
    content = cbor2.dumps([number, command.verb, *command.arguments])
    return hmac.digest(key, content, "sha256")[:TAG_BYTES]
