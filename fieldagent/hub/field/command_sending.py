"""Sends a command under the next number, with the proof that its kit requires. Before that,
computes the cost of the command and its answer over satellite.
"""

from __future__ import annotations

from dataclasses import replace

from fieldagent.hub.access import device_keys
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.field.mobile_terminated import IS_REACHABLE, compute_allowance
from fieldagent.hub.records import commands
from fieldagent.hub.records.account import ACCOUNT, read_account
from fieldagent.hub.records.commands import CommandToSend
from fieldagent.hub.records.lease import IS_LINKED
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import CommandAnswer, CommandOutcome
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence
from fieldagent.wire.command import VERB_BY_NAME, RemoteCommand, get_verb
from fieldagent.wire.credit import compute_credits
from fieldagent.wire.envelope import Entry, encode
from fieldagent.wire.proof import derive_command_key, prove_command

ITEM_NUMBER = 2**31
"""Item number for the computation of sizes. It is encoded in as many bytes as the largest number of
an item from a kit."""


class CommandCost(NamedTuple):
    linked: bool
    """True if the device has a link, over which the command is free."""
    is_reachable: bool
    """True if the device has a satellite modem at this hub."""
    bytes_down: int
    """Size in bytes of the message that brings the command to the kit."""
    bytes_up: int
    """Largest number of bytes of the answer. For some verbs, this is an estimate."""
    credits: int
    """Credits of the command and its answer. 0 if the modem is billed by bytes."""
    credits_left: int | None
    """Credits left today for messages from the hub; None if there is no budget."""
    operator: str | None
    fits: bool
    """True if the device's modem accepts the command in one message."""


def compute_cost(
    db: Db, device: int, command_number: int, command: RemoteCommand, now: float
) -> CommandCost:
    """Return the cost of a command including its answer. Raises NotACommand."""
    verb = get_verb(command)
    ((linked, is_reachable, operator, *row),) = db.execute(
        f"SELECT {IS_LINKED}, CASE WHEN {IS_REACHABLE} THEN 1 ELSE 0 END, operator, {ACCOUNT}"
        " FROM device WHERE id = ?",
        *(now, device),
    )
    account = read_account(row)
    down = len(encode([Entry(command_number, command)], key=account.key))
    answer = CommandAnswer(
        command_number, CommandOutcome.DONE, bytes(verb.answer_bytes(command.arguments))
    )
    up = len(encode([Entry(ITEM_NUMBER, answer, int(now))], key=account.key))
    credit = 0 if account.by_bytes else compute_credits(down) + compute_credits(up)
    allowance = compute_allowance(db, account, now, urgent=False)
    fits = down <= account.mt_bytes
    return CommandCost(
        bool(linked), bool(is_reachable), down, up, credit, allowance, operator, fits
    )


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
