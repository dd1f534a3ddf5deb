"""Proofs that an incident update comes from the incident's own kit or from the hub, and that the
hub sent a command to exactly one kit.

The hub and the kit have a secret that no one else has. The secret is the device's `satellite-key`,
otherwise its link token, of which the hub stores the SHA-256. Neighbours that relay an update or a
command, and owners of `radio-key`, cannot make such a proof (`docs/reference/on-air.md`,
"Incidents"). The proof does not show which person sent the command. The hub's audit log does.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import replace

import cbor2

from fieldagent.package.package import IncidentUpdate
from fieldagent.wire.command import RemoteCommand
from fieldagent.wire.envelope import derive_key
from fieldagent.wire.seal import TAG_BYTES


def derive_proof_key(secret: bytes) -> bytes:
    """Return the key for proofs of incident updates. `secret` is a device's 32-byte master key
    (`satellite-key`), or the `digest_token` of its link token.
    """
    return derive_key(secret, "SOS")


def digest_token(token: str) -> bytes:
    """Return the 32-byte digest of a link token, which the hub stores."""
    return hashlib.sha256(token.encode()).digest()


def prove_update(update: IncidentUpdate, key: bytes) -> IncidentUpdate:
    """Return the update with a proof that is made with `key`, a result of `derive_proof_key`."""
    return replace(update, proof=_compute_update_proof(update, key))


def is_update_proved(update: IncidentUpdate, keys: Iterable[bytes]) -> bool:
    """Return True if one of the keys has made the update's proof."""
    return any(
        hmac.compare_digest(_compute_update_proof(update, key), update.proof) for key in keys
    )


def _compute_update_proof(update: IncidentUpdate, key: bytes) -> bytes:
    proved_text = cbor2.dumps([update.incident, update.state.value, update.by, update.text])
    return hmac.digest(key, proved_text, "sha256")[:TAG_BYTES]


def derive_command_key(secret: bytes) -> bytes:
    """Return the key for proofs of commands. `secret` is the same as for `derive_proof_key`."""
    return derive_key(secret, "command")


def prove_command(command_number: int, command: RemoteCommand, key: bytes) -> RemoteCommand:
    """Return the command with its proof, made with `key`. `command_number` is the number of the
    command's entry in the envelope.
    """
    return replace(command, proof=_compute_command_proof(command_number, command, key))


def is_command_proved(command_number: int, command: RemoteCommand, keys: Iterable[bytes]) -> bool:
    """Return True if one of the keys has made the command's proof, for a command with this
    number.
    """
    return any(
        hmac.compare_digest(_compute_command_proof(command_number, command, key), command.proof)
        for key in keys
    )


def _compute_command_proof(number: int, command: RemoteCommand, key: bytes) -> bytes:
    content = cbor2.dumps([number, command.verb, *command.arguments])
    return hmac.digest(key, content, "sha256")[:TAG_BYTES]
