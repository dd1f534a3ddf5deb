"""Commands to kits, and what they answered (`wire.command`).

    waiting   for the kit's link, or for the moment from which a satellite message is paid for
    packed    in a message to the satellite operator; the link may bring it as well
    stored    the kit has it on its disk, as its link has confirmed
    answered  its answer came

Over satellite nobody confirms it but the answer. One that is damaged in the database is brought no
more: it holds up neither its kit's others, nor what goes to all kits.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from fieldagent.hub.records import audit, kit_condition
from fieldagent.hub.records.earshot import AGAIN_AFTER, NEXT_AFTER
from fieldagent.hub.records.lease import IS_LINKED
from fieldagent.hub.records.owed import announce_mail
from fieldagent.hub.records.stored_entry import DAMAGED_ROW
from fieldagent.hub.store.contract import Db, marks
from fieldagent.package.package import CommandAnswer, CommandOutcome
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.command import BY_NAME, RemoteCommand, in_words
from fieldagent.wire.command_answer import text_of
from fieldagent.wire.envelope import Entry, decode, encode
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)

LIFE = 5 * 86_400.0
"""Seconds in which a command is brought: a kit does none that is older."""
BEARERS = ("ip", "satellite")
"""The first is its own link, or a neighbour's that hears it: neither is paid for."""


@dataclass(frozen=True, slots=True)
class GivenCommand:
    """A command that is to be given."""

    workspace: int
    device: int
    number: int
    command: RemoteCommand
    bearer: str
    """By which alone it goes; empty: by either."""
    actor: str
    """As `audit` has it."""


def next_number(db: Db, device: int, now: float) -> int:
    """Return the number of the next one, which is above all that there were."""
    ((last,),) = db.execute("SELECT max(number) FROM command WHERE device = ?", device)
    return max(int(now), (last or 0) + 1)


def give(db: Db, order: GivenCommand, now: float, grace: float) -> bool:
    """Enter it, to be brought; False where its number has been given meanwhile, by another process.
    `grace` is how many seconds the link has before a satellite message is paid for."""
    from_then = {"ip": None, "satellite": now}.get(order.bearer, now + grace)
    entered = db.execute(
        "INSERT INTO command (device, number, verb, body, bearer, given, expires, satellite_from,"
        " state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'waiting') ON CONFLICT DO NOTHING"
        " RETURNING number",
        *(order.device, order.number, order.command.verb),
        *(encode([Entry(order.number, order.command)]), order.bearer),
        *(now, now + LIFE, from_then),
    )
    if not entered:
        return False
    by = f" by {order.bearer}" if order.bearer else ""
    detail = f"{order.device}: {order.number} {in_words(order.command)}{by}"
    audit.note(db, order.workspace, order.actor, "command", detail, now)
    announce_mail(db, order.device)
    db.announce("satellite")
    return True


IS_DUE = (
    "command.state = 'waiting' AND command.satellite_from <= ? AND command.not_before <= ?"
    " AND command.expires > ?"
)
"""By satellite, unless its device is linked and the link may bring it: the moment, three times."""


def waiting(db: Db, device: int, now: float, *, limit: int) -> list[Entry]:
    """Return those that a device's link may bring, the first first."""
    rows = db.execute(
        "SELECT number, body FROM command WHERE device = ? AND state IN ('waiting', 'packed')"
        " AND bearer <> 'satellite' AND expires > ? ORDER BY number LIMIT ?",
        *(device, now, limit),
    )
    return _whole(_entry(device, number, body) for number, body in rows)


def due(db: Db, device: int, now: float, *, linked: bool) -> list[Entry]:
    """Return those that are to go over satellite now, the first first; end those that are
    damaged."""
    which = " AND bearer = 'satellite'" if linked else ""
    rows = db.execute(
        f"SELECT number, body FROM command WHERE device = ? AND {IS_DUE}{which} ORDER BY number",
        *(device, now, now, now),
    )
    entries = {number: _entry(device, number, body) for number, body in rows}
    for number, entry in entries.items():
        if entry is None:
            ended = "UPDATE command SET expires = ? WHERE device = ? AND number = ?"
            db.execute(ended, now, device, number)
    return _whole(entries.values())


def note_packed(db: Db, device: int, number: int) -> None:
    """Note that it is in a message to the satellite operator."""
    db.execute(
        "UPDATE command SET state = 'packed', reason = '' WHERE device = ? AND number = ?",
        *(device, number),
    )


def is_under_way(db: Db, device: int, number: int, now: float) -> bool:
    """Return whether one that is in a message to the operator still has to come to its kit."""
    sql = "SELECT 1 FROM command WHERE device = ? AND number = ? AND state = 'packed'"
    return bool(db.execute(f"{sql} AND expires > ?", device, number, now))


def put_off(db: Db, device: int, number: int, until: float, why: str) -> None:
    """Let it wait until then; `why` is for people."""
    db.execute(
        "UPDATE command SET not_before = ?, reason = ? WHERE device = ? AND number = ?",
        *(until, why, device, number),
    )


class ToCarry(NamedTuple):
    device: int
    given_at: float
    expires: float
    entry: Entry


def to_carry(db: Db, carrier: int, journal: int, now: float) -> list[ToCarry]:
    """Return those for kits without a link of their own now that a carrier hears: those that it has
    not had yet, or in another journal or long ago, as of items (`earshot`)."""
    rows = db.execute(
        "SELECT command.device, given, command.expires, number, body FROM command"
        " JOIN earshot ON earshot.device = command.device AND earshot.carrier = ?"
        " JOIN device ON device.id = command.device"
        f" WHERE command.state IN ('waiting', 'packed') AND bearer <> 'satellite' AND verb <> {SET}"
        f" AND command.expires > ? AND device.disabled IS NULL AND NOT {IS_LINKED}"
        " AND (carried IS NULL OR command.carrier = ? AND (command.journal <> ? OR carried < ?)"
        " OR command.carrier <> ? AND carried < ?) ORDER BY command.device, number",
        *(carrier, now, now, carrier, journal, now - AGAIN_AFTER, carrier, now - NEXT_AFTER),
    )
    return [
        ToCarry(device, given_at, ends, entry)
        for device, given_at, ends, number, body in rows
        if (entry := _entry(device, number, body)) is not None
    ]


SET = BY_NAME["set"].number
"""A neighbour brings no settings: their trial asks for a way of the kit's own."""


def note_carried(
    db: Db, carrier: int, journal: int, numbers: Collection[tuple[int, int]], now: float
) -> None:
    """Note that a carrier has these on disk, each by device and number."""
    for device, number in numbers:
        db.execute(
            "UPDATE command SET carrier = ?, journal = ?, carried = ? WHERE device = ?"
            " AND number = ?",
            *(carrier, journal, now, device, number),
        )


def note_stored(db: Db, device: int, numbers: Collection[int]) -> None:
    """Note that the kit has them on its disk."""
    if numbers:
        db.execute(
            "UPDATE command SET state = 'stored', reason = '' WHERE device = ?"
            f" AND state IN ('waiting', 'packed') AND number IN ({marks(numbers)})",
            *(device, *numbers),
        )


def withdraw(db: Db, device: int, verb: int, now: float) -> None:
    """Bring no more of that verb that was given before; what left already may come all the same."""
    db.execute(
        "UPDATE command SET expires = ? WHERE device = ? AND verb = ? AND expires > ?"
        " AND state IN ('waiting', 'packed')",
        *(now, device, verb, now),
    )


def note_answer(db: Db, device: int, answer: CommandAnswer, came_by: str, now: float) -> bool:
    """Write down what the kit answered; False where the hub gave it no such command, or has its
    answer."""
    rows = db.execute(
        "UPDATE command SET state = 'answered', reason = '', outcome = ?, answer = ?, answered = ?,"
        " way = ? WHERE device = ? AND number = ? AND answered IS NULL RETURNING verb",
        *(int(answer.outcome), answer.body, now, came_by, device, answer.number),
    )
    for (verb,) in rows:
        kit_condition.note_answer(db, device, verb, answer, came_by, now)
        ((workspace,),) = db.execute("SELECT workspace FROM device WHERE id = ?", device)
        detail = f"{device}: {answer.number} {answer.outcome.name.lower()} by {came_by}"
        audit.note(db, workspace, audit.HUB, "command answered", detail, now)
        db.announce(topic(device))
    return bool(rows)


def is_answered(db: Db, device: int, number: int) -> bool:
    """Return whether its answer is here, which another carrier may bring as well."""
    return bool(
        db.execute(
            "SELECT 1 FROM command WHERE device = ? AND number = ? AND answered IS NOT NULL",
            *(device, number),
        )
    )


FORGOTTEN_AT_ONCE = 100


def forget(db: Db, *, before: float) -> int:
    """Drop some that were given before then, but the last of each device, by which the next gets
    its number; how many. More may be there while it is not 0."""
    return len(
        db.execute(
            "DELETE FROM command WHERE (device, number) IN (SELECT device, number FROM command"
            " WHERE given < ? AND number < (SELECT max(other.number) FROM command other"
            " WHERE other.device = command.device) LIMIT ?) RETURNING number",
            *(before, FORGOTTEN_AT_ONCE),
        )
    )


def topic(device: int) -> str:
    """Return what is announced when a device has answered."""
    return f"answers {device}"


def listing(
    db: Db, device: int, now: float, *, limit: int, before: int = 2**63 - 1
) -> list[dict[str, Any]]:
    """Return those with numbers below `before` for people, the last first; times in Unix
    seconds."""
    rows = db.execute(
        "SELECT number, verb, body, bearer, given, expires, state, reason, outcome, answer,"
        " answered, way FROM command WHERE device = ? AND number < ?"
        " ORDER BY number DESC LIMIT ?",
        *(device, before, limit),
    )
    entries = []
    for (
        number,
        verb,
        body,
        bearer,
        given_at,
        expires,
        state,
        reason,
        outcome,
        payload,
        at,
        came_by,
    ) in rows:
        answer = _answer(number, outcome, payload)
        entry = _entry(device, number, body)
        over = expires <= now and state in ("waiting", "packed")
        entries.append(
            {
                "number": number,
                "command": _in_words(entry, verb),
                "bearer": bearer or None,
                "given": given_at,
                "state": "expired" if over else state,
                "reason": reason or (DAMAGED_ROW if entry is None else None),
                "outcome": None if answer is None else answer.outcome.name.lower(),
                "answer": None if answer is None else text_of(verb, answer),
                "answered": at,
                "answeredBy": came_by,
            }
        )
    return entries


def _answer(number: int, outcome: int | None, payload: bytes | None) -> CommandAnswer | None:
    with suppress(ValueError):
        if outcome is not None:
            return CommandAnswer(number, CommandOutcome(outcome), bytes(payload or b""))
    return None


def _in_words(entry: Entry | None, verb: int) -> str:
    """Return a command as a person writes it; the verb alone of one that is damaged."""
    content = None if entry is None else entry.content
    return in_words(content if isinstance(content, RemoteCommand) else RemoteCommand(verb))


def _whole(entries: Iterable[Entry | None]) -> list[Entry]:
    return [each for each in entries if each is not None]


def _entry(device: int, number: int, body: bytes) -> Entry | None:
    """Return what goes to the kit; None where that is damaged."""
    with suppress(RemoteProtocolError, ValueError):
        (entry,) = decode(bytes(body)).entries
        if entry.sequence == number and isinstance(entry.content, RemoteCommand):
            return entry
    _note_damaged(device, number)
    return None


@lru_cache(maxsize=100)
def _note_damaged(device: int, number: int) -> None:
    """Once for each."""
    log.error(
        "command %d to device %d is damaged in the database, and is not brought: give it again,"
        " and look at the disk",
        *(number, device),
    )
