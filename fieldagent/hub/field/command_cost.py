"""What a command and its answer take over satellite, before it is given."""

from __future__ import annotations

from fieldagent.hub.field.mobile_terminated import REACHED, allowance
from fieldagent.hub.records.account import ACCOUNT, account_of
from fieldagent.hub.records.lease import IS_LINKED
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import CommandAnswer, CommandOutcome
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.command import RemoteCommand, verb_of
from fieldagent.wire.credit import credits_for
from fieldagent.wire.envelope import Entry, encode

ITEM_NUMBER = 2**31
"""Takes as many bytes as a kit's number for an item does."""


class CommandCost(NamedTuple):
    linked: bool
    """The link brings it, which costs nothing."""
    reached: bool
    """It has a satellite modem here."""
    down: int
    """Bytes."""
    up: int
    """Bytes of the answer at the most, where its verb says so, or about."""
    credits: int
    """Of both; 0 where bytes are paid for."""
    credits_left: int | None
    """Today, for what the hub sends; None without a budget."""
    operator: str | None
    fits: bool
    """Its modem takes it in one message."""


def cost(db: Db, device: int, number: int, command: RemoteCommand, now: float) -> CommandCost:
    """Return what a command costs, answer included. Raises NotACommand."""
    verb = verb_of(command)
    ((linked, reached, operator, *row),) = db.execute(
        f"SELECT {IS_LINKED}, CASE WHEN {REACHED} THEN 1 ELSE 0 END, operator, {ACCOUNT}"
        " FROM device WHERE id = ?",
        *(now, device),
    )
    account = account_of(row)
    down = len(encode([Entry(number, command)], key=account.key))
    answer = CommandAnswer(number, CommandOutcome.DONE, bytes(verb.answer_bytes(command.arguments)))
    up = len(encode([Entry(ITEM_NUMBER, answer, int(now))], key=account.key))
    credit = 0 if account.by_bytes else credits_for(down) + credits_for(up)
    left = allowance(db, account, now, urgent=False)
    fits = down <= account.mt_bytes
    return CommandCost(bool(linked), bool(reached), down, up, credit, left, operator, fits)
