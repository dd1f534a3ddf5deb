"""Commands to kits, and the kits' answers (`wire.command`).

    waiting   for the kit's link, or for the moment when a satellite message is allowed
    packed    in a message to the satellite operator; the link can still deliver it
    stored    on the kit's disk, as its link has confirmed
    answered  the hub has the answer

Over satellite, only the answer confirms a command. A command that is damaged in the database is not
sent any more, so that it does not block other commands.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from fieldagent.hub.records import audit, kit_condition
from fieldagent.hub.records.due_receipts import announce_mail
from fieldagent.hub.records.lease import IS_LINKED
from fieldagent.hub.records.stations_in_range import NEXT_CARRIER_AFTER_S, REGIVE_AFTER_S
from fieldagent.hub.records.stored_entry import DAMAGED_ROW
from fieldagent.hub.store.contract import Db, make_marks, make_membership
from fieldagent.package.package import CommandAnswer, CommandOutcome
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.answer_text import format_answer
from fieldagent.wire.command import VERB_BY_NAME, RemoteCommand, format_command
from fieldagent.wire.envelope import Entry, decode, encode
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)

LIFETIME_S = 5 * 86_400.0
"""Seconds during which the hub sends a command. A kit does not execute an older command."""
BEARERS = ("ip", "satellite")
"""Bearers that can be chosen for a command. "ip" is the kit's own link, or the link of a neighbour
that hears the kit. Both are free of charge."""


@dataclass(frozen=True, slots=True)
class CommandToSend:
    """A command for a device, and the bearer that the hub may use for it."""

    workspace: int
    device: int
    number: int
    command: RemoteCommand
    bearer: str
    """The only bearer that may be used, or empty for any bearer."""
    actor: str
    """Person or program that sends the command, in the form of the audit log."""


def compute_next_number(db: Db, device: int, now: float) -> int:
    """Return the number for the next command to a device. The number is higher than all earlier
    numbers.
    """
    ((last,),) = db.execute("SELECT max(number) FROM command WHERE device = ?", device)
    return max(int(now), (last or 0) + 1)


def store_command(db: Db, command_to_send: CommandToSend, now: float, grace: float) -> bool:
    """Store a command for sending. Return False if another process has used the command's number
    already. The hub pays for a satellite message if the link has not delivered the command after
    `grace` seconds.
    """
    from_then = {"ip": None, "satellite": now}.get(command_to_send.bearer, now + grace)
    entered = db.execute(
        "INSERT INTO command (device, number, verb, body, bearer, given, expires, satellite_from,"
        " state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'waiting') ON CONFLICT DO NOTHING"
        " RETURNING number",
        *(command_to_send.device, command_to_send.number, command_to_send.command.verb),
        *(encode([Entry(command_to_send.number, command_to_send.command)]), command_to_send.bearer),
        *(now, now + LIFETIME_S, from_then),
    )
    if not entered:
        return False
    bearer_text = f" by {command_to_send.bearer}" if command_to_send.bearer else ""
    text = format_command(command_to_send.command)
    detail = f"{command_to_send.device}: {command_to_send.number} {text}{bearer_text}"
    audit.write_line(db, command_to_send.workspace, command_to_send.actor, "command", detail, now)
    announce_mail(db, command_to_send.device)
    db.announce("satellite")
    return True


IS_DUE = (
    "command.state = 'waiting' AND command.satellite_from <= ? AND command.not_before <= ?"
    " AND command.expires > ?"
)
"""SQL condition: the command is due over satellite, unless its device is linked and the link may
deliver it. Parameters: the time, three times."""


def list_commands_at_each(
    db: Db, devices: Sequence[int], now: float, *, limit: int
) -> dict[int, list[Entry]]:
    """Return, for each device, the commands that its link may deliver now, oldest first."""
    membership, numbers = make_membership(db, devices)
    rows = db.execute(
        f"SELECT device, number, body FROM command WHERE device {membership}"
        " AND state IN ('waiting', 'packed') AND bearer <> 'satellite' AND expires > ?"
        " ORDER BY device, number",
        *(*numbers, now),
    )
    orders: dict[int, list[Entry | None]] = {device: [] for device in devices}
    for device, number, body in rows:
        orders[device].append(_make_entry(device, number, body))
    return {device: _list_entries(entries)[:limit] for device, entries in orders.items()}


def list_due_commands(db: Db, device: int, now: float, *, linked: bool) -> list[Entry]:
    """Return the commands that are due over satellite now, oldest first. Damaged commands
    expire.
    """
    condition = " AND bearer = 'satellite'" if linked else ""
    rows = db.execute(
        f"SELECT number, body FROM command WHERE device = ? AND {IS_DUE}{condition}"
        " ORDER BY number",
        *(device, now, now, now),
    )
    entries = {number: _make_entry(device, number, body) for number, body in rows}
    for number, entry in entries.items():
        if entry is None:
            end_sql = "UPDATE command SET expires = ? WHERE device = ? AND number = ?"
            db.execute(end_sql, now, device, number)
    return _list_entries(entries.values())


def mark_command_packed(db: Db, device: int, command_number: int) -> None:
    """Record that the command is in a message to the satellite operator."""
    db.execute(
        "UPDATE command SET state = 'packed', reason = '' WHERE device = ? AND number = ?",
        *(device, command_number),
    )


def is_under_way(db: Db, device: int, command_number: int, now: float) -> bool:
    """Return True if a command is in a message to the operator and has not expired."""
    sql = "SELECT 1 FROM command WHERE device = ? AND number = ? AND state = 'packed'"
    return bool(db.execute(f"{sql} AND expires > ?", device, command_number, now))


def postpone_command(db: Db, device: int, command_number: int, until: float, reason: str) -> None:
    """Delay a command until the Unix time `until`. People see `reason`."""
    db.execute(
        "UPDATE command SET not_before = ?, reason = ? WHERE device = ? AND number = ?",
        *(until, reason, device, command_number),
    )


class CarriedCommand(NamedTuple):
    device: int
    given_at: float
    expires: float
    entry: Entry


def list_to_carry(db: Db, carrier: int, journal_number: int, now: float) -> list[CarriedCommand]:
    """Return the commands that a carrier can relay by radio to kits in its range that have no link
    now.

    A command is included if no carrier has stored it, or if this carrier lost it with an earlier
    journal. It is included again if this carrier stored it more than REGIVE_AFTER_S ago, or if
    another carrier stored it more than NEXT_CARRIER_AFTER_S ago.
    """
    rows = db.execute(
        "SELECT command.device, given, command.expires, number, body FROM command"
        " JOIN earshot ON earshot.device = command.device AND earshot.carrier = ?"
        " JOIN device ON device.id = command.device"
        f" WHERE command.state IN ('waiting', 'packed') AND bearer <> 'satellite' AND verb <> {SET}"
        f" AND command.expires > ? AND device.disabled IS NULL AND NOT {IS_LINKED}"
        " AND (carried IS NULL OR command.carrier = ? AND (command.journal <> ? OR carried < ?)"
        " OR command.carrier <> ? AND carried < ?) ORDER BY command.device, number",
        *(
            carrier,
            now,
            now,
            carrier,
            journal_number,
            now - REGIVE_AFTER_S,
            carrier,
            now - NEXT_CARRIER_AFTER_S,
        ),
    )
    return [
        CarriedCommand(device, given_at, expires_at, entry)
        for device, given_at, expires_at, number, body in rows
        if (entry := _make_entry(device, number, body)) is not None
    ]


SET = VERB_BY_NAME["set"].number
"""Number of the command `set`. A carrier does not relay this command, because the kit tests new
settings over its own route to the hub."""


def record_commands_carried(
    db: Db, carrier: int, journal_number: int, numbers: Collection[tuple[int, int]], now: float
) -> None:
    """Record that a carrier has these commands on disk. `numbers` are pairs of device and command
    number.
    """
    for device, number in numbers:
        db.execute(
            "UPDATE command SET carrier = ?, journal = ?, carried = ? WHERE device = ?"
            " AND number = ?",
            *(carrier, journal_number, now, device, number),
        )


def mark_commands_stored(db: Db, device: int, numbers: Collection[int]) -> None:
    """Record that the kit has the commands on its disk."""
    if numbers:
        db.execute(
            "UPDATE command SET state = 'stored', reason = '' WHERE device = ?"
            f" AND state IN ('waiting', 'packed') AND number IN ({make_marks(numbers)})",
            *(device, *numbers),
        )


def expire_commands(db: Db, device: int, verb: int, now: float) -> None:
    """Expire earlier commands with this verb. A command that was already sent may still arrive."""
    db.execute(
        "UPDATE command SET expires = ? WHERE device = ? AND verb = ? AND expires > ?"
        " AND state IN ('waiting', 'packed')",
        *(now, device, verb, now),
    )


def record_answer(db: Db, device: int, answer: CommandAnswer, came_by: str, now: float) -> bool:
    """Store the kit's answer to a command. Return False if the hub did not send such a command or
    already has its answer.
    """
    rows = db.execute(
        "UPDATE command SET state = 'answered', reason = '', outcome = ?, answer = ?, answered = ?,"
        " way = ? WHERE device = ? AND number = ? AND answered IS NULL RETURNING verb",
        *(int(answer.outcome), answer.body, now, came_by, device, answer.number),
    )
    for (verb,) in rows:
        kit_condition.store_status_answer(db, device, verb, answer, came_by, now)
        ((workspace,),) = db.execute("SELECT workspace FROM device WHERE id = ?", device)
        detail = f"{device}: {answer.number} {answer.outcome.name.lower()} by {came_by}"
        audit.write_line(db, workspace, audit.HUB, "command answered", detail, now)
        db.announce(get_topic(device))
    return bool(rows)


def is_answered(db: Db, device: int, command_number: int) -> bool:
    """Return True if the hub has the answer to a command, which may have arrived through another
    carrier.
    """
    return bool(
        db.execute(
            "SELECT 1 FROM command WHERE device = ? AND number = ? AND answered IS NOT NULL",
            *(device, command_number),
        )
    )


DELETED_PER_CALL = 100


def delete_old_commands(db: Db, *, before: float) -> int:
    """Delete some commands older than `before` and return their number. Repeat the call until the
    number is 0. The last command of each device is kept, because the next number depends on it.
    """
    return len(
        db.execute(
            "DELETE FROM command WHERE (device, number) IN (SELECT device, number FROM command"
            " WHERE given < ? AND number < (SELECT max(other.number) FROM command other"
            " WHERE other.device = command.device) LIMIT ?) RETURNING number",
            *(before, DELETED_PER_CALL),
        )
    )


def get_topic(device: int) -> str:
    """Return the topic that is announced when a device has answered a command."""
    return f"answers {device}"


def list_commands(
    db: Db, device: int, now: float, *, limit: int, before: int = 2**63 - 1
) -> list[dict[str, Any]]:
    """Return the commands with numbers below `before`, newest first, in the form that people see.
    Times are Unix seconds.
    """
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
        answer = _make_answer(number, outcome, payload)
        entry = _make_entry(device, number, body)
        is_over = expires <= now and state in ("waiting", "packed")
        entries.append(
            {
                "number": number,
                "command": _format_command(entry, verb),
                "bearer": bearer or None,
                "given": given_at,
                "state": "expired" if is_over else state,
                "reason": reason or (DAMAGED_ROW if entry is None else None),
                "outcome": None if answer is None else answer.outcome.name.lower(),
                "answer": None if answer is None else format_answer(verb, answer),
                "answered": at,
                "answeredBy": came_by,
            }
        )
    return entries


def _make_answer(number: int, outcome: int | None, payload: bytes | None) -> CommandAnswer | None:
    with suppress(ValueError):
        if outcome is not None:
            return CommandAnswer(number, CommandOutcome(outcome), bytes(payload or b""))
    return None


def _format_command(entry: Entry | None, verb: int) -> str:
    """Return the command in the form in which people write it. If the command is damaged, return
    only the verb.
    """
    content = None if entry is None else entry.content
    return format_command(content if isinstance(content, RemoteCommand) else RemoteCommand(verb))


def _list_entries(entries: Iterable[Entry | None]) -> list[Entry]:
    return [each for each in entries if each is not None]


def _make_entry(device: int, number: int, body: bytes) -> Entry | None:
    """Return the envelope entry that sends the command to the kit, or None if the stored command is
    damaged.
    """
    with suppress(RemoteProtocolError, ValueError):
        (entry,) = decode(bytes(body)).entries
        if entry.sequence == number and isinstance(entry.content, RemoteCommand):
            return entry
    _log_damage_once(device, number)
    return None


@lru_cache(maxsize=100)
def _log_damage_once(device: int, number: int) -> None:
    log.error(
        "command %d to device %d is damaged in the database, and is not sent: send it again, and"
        " check the disk",
        *(number, device),
    )
