"""Computes the cost of a command and its answer over satellite before the command is sent."""

from __future__ import annotations

from fieldagent.hub.field.mobile_terminated import IS_REACHABLE, compute_allowance
from fieldagent.hub.records.account import ACCOUNT, read_account
from fieldagent.hub.records.lease import IS_LINKED
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import CommandAnswer, CommandOutcome
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.command import RemoteCommand, get_verb
from fieldagent.wire.credit import compute_credits
from fieldagent.wire.envelope import Entry, encode

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
