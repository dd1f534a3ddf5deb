"""Commands of the hub in the journal, from their arrival to their answer.

    accepted  on disk, not begun
    begun     in progress: it changes something, and must not be begun twice
    owed      its answer is on disk, but not yet in a Package
    answered  its answer is in a Package on its way to the hub

A command that only reads goes directly from `accepted` to `owed`. A refused command starts as
`owed`. A damaged command is not carried out but answered as failed, so that it does not delay
others.

The journal also keeps the program deltas that the hub has sent, until a command uses them.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Any

import cbor2

from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.package.package import CommandAnswer, CommandOutcome
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import answer_text, strict_cbor
from fieldagent.wire.command import (
    VERB_BY_NAME,
    NotACommand,
    RemoteCommand,
    decode_command,
    get_verb,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.signed_delta import compute_payload_digest

COMMANDS_MAX = 200
"""Number of newest commands that are kept even after they are answered. A command with a lower
number than these counts as known, so it is not carried out again."""
DAMAGED_ANSWER_REASON = "its answer is damaged on the kit's disk: its progress is unknown"
_ROW = "number, verb, arguments, channel, came, state, boot, outcome, answer, answered"


class StoredCommand(NamedTuple):
    number: int
    command: RemoteCommand
    """The command without its authentication tag."""
    channel: str
    """Channel over which the command first arrived. The answer is sent over the same channel."""
    arrived_at: float
    """Time of arrival, in elapsed time."""
    state: str
    boot: str
    """Id of the boot in which the command was begun, or '' if it was not begun."""
    answer: CommandAnswer | None
    answered_at: float | None
    is_readable: bool = True
    """True if the command is complete and known; otherwise `command` contains only the verb."""


def store_command(
    db: sqlite3.Connection, command_number: int, command: RemoteCommand, channel: str, now: float
) -> None:
    """Store a command that arrived for the first time."""
    arguments = cbor2.dumps(list(command.arguments))
    db.execute(
        "INSERT INTO command (number, verb, arguments, channel, came, state)"
        " VALUES (?, ?, ?, ?, ?, 'accepted')",
        (command_number, command.verb, arguments, channel, now),
    )


def is_known(db: sqlite3.Connection, command_number: int) -> bool:
    """Return True if the command `command_number` arrived before, or if it has a lower number than
    the COMMANDS_MAX newest commands, whose records may be deleted.
    """
    # All numbers below the newest COMMANDS_MAX commands count as known. Of these older commands,
    # the table contains only those without an answer.
    ((is_in_journal, count, oldest),) = db.execute(
        "SELECT (SELECT count(*) FROM command WHERE number = ?), count(*), min(number)"
        " FROM (SELECT number FROM command ORDER BY number DESC LIMIT ?)",
        (command_number, COMMANDS_MAX),
    )
    return bool(is_in_journal) or (count >= COMMANDS_MAX and command_number < oldest)


def read_last_number(db: sqlite3.Connection) -> int:
    """Return the highest command number that has arrived, or 0 if there is none."""
    ((highest,),) = db.execute("SELECT max(number) FROM command")
    return highest or 0


def begin(command_number: int, boot: str) -> Operation[None]:
    """Return the operation that records that the command is in progress in the boot `boot`."""

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE command SET state = 'begun', boot = ? WHERE number = ?", (boot, command_number)
        )

    return store


def store_answer(db: sqlite3.Connection, answer: CommandAnswer) -> None:
    """Store the answer to a command. The answer is not in a Package yet."""
    db.execute(
        "UPDATE command SET state = 'owed', outcome = ?, answer = ? WHERE number = ?",
        (int(answer.outcome), answer.body, answer.number),
    )


def mark_answered(command_number: int, now: float) -> Operation[None]:
    """Return the operation that records that the answer is in a Package. It also deletes answered
    commands that are not among the COMMANDS_MAX newest commands.
    """

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE command SET state = 'answered', answered = ? WHERE number = ?",
            (now, command_number),
        )
        db.execute(
            "DELETE FROM command WHERE state = 'answered' AND number <"
            " (SELECT min(number) FROM (SELECT number FROM command ORDER BY number DESC LIMIT ?))",
            (COMMANDS_MAX,),
        )

    return store


def list_unanswered(journal: Journal) -> list[StoredCommand]:
    """Return the commands whose answers are not in a Package yet, oldest first."""
    return _make_commands(
        journal.read(f"SELECT {_ROW} FROM command WHERE state <> 'answered' ORDER BY number")
    )


def list_newest(journal: Journal, limit: int) -> list[StoredCommand]:
    """Return at most `limit` commands, newest first."""
    return _make_commands(
        journal.read(f"SELECT {_ROW} FROM command ORDER BY number DESC LIMIT ?", limit)
    )


def record_held_kind(kind: str, *, is_held: bool) -> Operation[None]:
    """Return the operation that records whether posted items of `kind` are held back from
    satellite.
    """
    sql = "INSERT OR IGNORE INTO held_kind VALUES (?)" if is_held else _DELETE_HELD_KIND_SQL

    def store(db: sqlite3.Connection) -> None:
        db.execute(sql, (kind,))

    return store


_DELETE_HELD_KIND_SQL = "DELETE FROM held_kind WHERE kind = ?"


def read_held_kinds(journal: Journal) -> set[str]:
    """Return the kinds of items that are held back from satellite."""
    return {kind for (kind,) in journal.read("SELECT kind FROM held_kind")}


def count_start(db: sqlite3.Connection) -> int:
    """Count this start of the agent, and return the number of starts."""
    ((starts,),) = db.execute(
        "INSERT INTO agent_start VALUES (1, 1) ON CONFLICT (one) DO UPDATE SET"
        " starts = starts + 1 RETURNING starts"
    ).fetchall()
    return int(starts)


def count_starts(journal: Journal) -> int:
    """Return the number of starts of the agent with this journal."""
    return int(journal.read("SELECT coalesce(max(starts), 0) FROM agent_start")[0][0])


def read_ended_boots(journal: Journal) -> set[str]:
    """Return the ids of the boots that ended with a reboot command of the hub."""
    rows = journal.read(
        "SELECT boot FROM command WHERE verb = ? AND boot <> '' AND coalesce(outcome, ?) = ?",
        *(VERB_BY_NAME["reboot"].number, int(CommandOutcome.DONE), int(CommandOutcome.DONE)),
    )
    return {boot for (boot,) in rows}


def _make_commands(rows: list[Any]) -> list[StoredCommand]:
    return [_make_command(*row) for row in rows]


def _make_command(
    number: int,
    verb: int,
    arguments: bytes,
    channel: str,
    arrived_at: float,
    state: str,
    boot: str,
    outcome: int | None,
    answer: bytes | None,
    ended_at: float | None,
) -> StoredCommand:
    command, is_readable = _read_command(verb, arguments)
    reply = _make_answer(number, outcome, answer)
    if reply is None and state in ("owed", "answered"):
        reply = CommandAnswer(
            number, CommandOutcome.FAILED, answer_text.pack(DAMAGED_ANSWER_REASON)
        )
    return StoredCommand(
        number, command, channel, arrived_at, state, boot, reply, ended_at, is_readable
    )


def _read_command(verb: int, arguments: bytes) -> tuple[RemoteCommand, bool]:
    """Return the command, and True if it is complete and known."""
    try:
        command = decode_command(verb, b"", *strict_cbor.decode_single(bytes(arguments)))
        get_verb(command)
    except (RemoteProtocolError, ValueError, TypeError, NotACommand):
        return RemoteCommand(verb), False
    return command, True


def _make_answer(number: int, outcome: int | None, body: bytes | None) -> CommandAnswer | None:
    with suppress(ValueError):
        if outcome is not None:
            return CommandAnswer(number, CommandOutcome(outcome), bytes(body or b""))
    return None


DELTAS_MAX = 2
"""Number of deltas that are kept. Usually a command uses the newest one."""


def store_delta(db: sqlite3.Connection, payload: bytes) -> None:
    """Store a complete delta, and keep only the DELTAS_MAX newest deltas."""
    db.execute(
        "INSERT OR REPLACE INTO program_delta (digest, payload) VALUES (?, ?)",
        (compute_payload_digest(payload), payload),
    )
    db.execute(
        "DELETE FROM program_delta WHERE number NOT IN"
        " (SELECT number FROM program_delta ORDER BY number DESC LIMIT ?)",
        (DELTAS_MAX,),
    )


def find_delta(journal: Journal, digest: bytes) -> bytes | None:
    """Return the payload of the delta with `digest`, or None if the delta is not stored."""
    rows = journal.read("SELECT payload FROM program_delta WHERE digest = ?", digest)
    return bytes(rows[0][0]) if rows else None


def is_delta_stored(journal: Journal, digest: bytes) -> bool:
    """Return True if the delta with `digest` is stored."""
    return bool(journal.read("SELECT 1 FROM program_delta WHERE digest = ?", digest))
