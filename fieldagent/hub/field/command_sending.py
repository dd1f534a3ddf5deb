"""Sends a command under the next number, with the proof that its kit requires."""

from __future__ import annotations

from dataclasses import replace

from fieldagent.hub.access import device_keys
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.field.command_cost import CommandCost
from fieldagent.hub.records import commands
from fieldagent.hub.records.commands import CommandToSend
from fieldagent.hub.store.contract import Db
from fieldagent.system.sentence import sentence
from fieldagent.wire.command import VERB_BY_NAME
from fieldagent.wire.proof import derive_command_key, prove_command

SET = VERB_BY_NAME["set"]


def is_paid(quote: CommandCost, bearer: str) -> bool:
    """Return True if the command would now be sent over satellite, with `bearer` as the allowed
    bearer. Raises Refused if the command cannot be sent.
    """
    if bearer == "ip" or (not bearer and not quote.is_reachable):
        return False
    if not quote.is_reachable:
        raise Refused(
            "the hub knows no satellite modem of this kit: set its IMEI with "
            "`fieldagent hub device imei`, or use --by ip"
        )
    if not quote.fits:
        raise Refused(
            sentence(
                "the kit's modem cannot receive a message of {down} bytes: use --by ip",
                down=quote.bytes_down,
            )
        )
    return bool(bearer) or not quote.linked


def store_command(db: Db, order: CommandToSend, grace: float, now: float) -> int:
    """Store a command for sending, and return its number. Raises Refused if the kit and the hub
    share no secret.
    """
    device = order.device
    secrets = device_keys.read_secrets(db, device)
    if not secrets:
        raise Refused(
            sentence(
                "the kit and this hub have no shared secret, so the kit would ignore it: create"
                " one with `fieldagent hub device token {device}` or `device key {device}`",
                device=device,
            )
        )
    number = max(order.number, commands.compute_next_number(db, device, 0.0))
    while not _is_stored(db, order, number, secrets[0], grace, now):
        number = commands.compute_next_number(db, device, 0.0)
    return number


def _is_stored(
    db: Db, order: CommandToSend, number: int, secret: bytes, grace: float, now: float
) -> bool:
    """Store the command under `number`. Return False if another process has used the number. Raises
    Refused if the command was signed for another number.
    """
    if number != order.number and order.command.verb == SET.number:
        raise Refused("another command was sent in the meantime: send yours again")
    proof = prove_command(number, order.command, derive_command_key(secret))
    return commands.store_command(db, replace(order, number=number, command=proof), now, grace)
