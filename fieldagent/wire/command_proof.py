"""Proof that the hub sent a command to exactly one kit.

The hub and the kit have a secret that no one else has. The secret is the device's `satellite-key`,
otherwise its link token, of which the hub stores the SHA-256. Kits that relay a command, and owners
of `radio-key`, cannot make such a proof. The proof does not show which person sent the command. The
hub's audit log does.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import replace

import cbor2

from fieldagent.package.package import CommandAnswer, CommandOutcome
from fieldagent.wire import answer_text, kit_status
from fieldagent.wire.command import VERB_BY_NAME, RemoteCommand
from fieldagent.wire.envelope import derive_key
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.tag import TAG_BYTES

STATUS = VERB_BY_NAME["status"].number


def format_answer(verb: int, answer: CommandAnswer) -> str:
    """Return the answer to a command as lines of text for people. If the answer cannot be read, the
    text says so.
    """
    try:
        if verb == STATUS and answer.outcome is CommandOutcome.DONE:
            return "\n".join(kit_status.format_lines(kit_status.decode(answer.body)))
        return answer_text.unpack(answer.body)
    except RemoteProtocolError as error:
        return f"{len(answer.body)} bytes that cannot be read: {error}"


def derive_command_key(secret: bytes) -> bytes:
    """Return the key for proofs. `secret` is a device's 32-byte master key (`satellite-key`), or
    the `incident_proof.digest_token` of its link token."""
    return derive_key(secret, "command")


def prove(command_number: int, command: RemoteCommand, key: bytes) -> RemoteCommand:
    """Return the command with its proof, made with `key`. `command_number` is the number of the
    command's entry in the envelope.
    """
    return replace(command, proof=_compute_proof(command_number, command, key))


def is_proved(command_number: int, command: RemoteCommand, keys: Iterable[bytes]) -> bool:
    """Return True if one of the keys has made the command's proof, for a command with this
    number.
    """
    return any(
        hmac.compare_digest(_compute_proof(command_number, command, key), command.proof)
        for key in keys
    )


def _compute_proof(number: int, command: RemoteCommand, key: bytes) -> bytes:
    content = cbor2.dumps([number, command.verb, *command.arguments])
    return hmac.digest(key, content, "sha256")[:TAG_BYTES]
