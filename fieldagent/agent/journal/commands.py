"""Commands of the hub's, from their coming to their answer.

    accepted  on disk, not begun
    begun     it is being done: it changes something, and is not begun twice
    owed      its answer is on disk, and is not a Package yet
    answered  its answer is a Package, under way to the hub

A command that reads goes from `accepted` to `owed` at once; one that is refused begins there. What
damage has made of one holds up no other: it is not carried out, and answered as failed.
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
from fieldagent.wire.command import BY_NAME, NotACommand, RemoteCommand, read_command, verb_of
from fieldagent.wire.errors import RemoteProtocolError

KEPT = 200
"""Commands: of a number below theirs nothing is known but that it is old."""
ANSWER_DAMAGED = "its answer is damaged on the kit's disk: nobody knows how far it came"
_ROW = "number, verb, arguments, channel, came, state, boot, outcome, answer, answered"


class KnownCommand(NamedTuple):
    number: int
    command: RemoteCommand
    """Without its proof."""
    channel: str
    """By which it came first: its answer goes that way."""
    came: float
    """Lived time, as the others."""
    state: str
    boot: str
    """In which it was begun; empty before."""
    answer: CommandAnswer | None
    answered: float | None
    is_readable: bool = True
    """What it says is a command that is known here; else `command` has the verb alone."""


def note(
    db: sqlite3.Connection, number: int, command: RemoteCommand, channel: str, now: float
) -> None:
    """Write down a command that has come, for the first time."""
    arguments = cbor2.dumps(list(command.arguments))
    db.execute(
        "INSERT INTO command (number, verb, arguments, channel, came, state)"
        " VALUES (?, ?, ?, ?, ?, 'accepted')",
        (number, command.verb, arguments, channel, now),
    )


def is_known(db: sqlite3.Connection, number: int) -> bool:
    """Return whether it was here before, or is older than all of which that is known."""
    # One of before may stand there still, unanswered.
    ((there, count, oldest),) = db.execute(
        "SELECT (SELECT count(*) FROM command WHERE number = ?), count(*), min(number)"
        " FROM (SELECT number FROM command ORDER BY number DESC LIMIT ?)",
        (number, KEPT),
    )
    return bool(there) or (count >= KEPT and number < oldest)


def last(db: sqlite3.Connection) -> int:
    """Return the highest number that has come; 0 for none."""
    ((highest,),) = db.execute("SELECT max(number) FROM command")
    return highest or 0


def begin(number: int, boot: str) -> Operation[None]:
    """Write down that it is being done, in that boot."""

    def store(db: sqlite3.Connection) -> None:
        db.execute("UPDATE command SET state = 'begun', boot = ? WHERE number = ?", (boot, number))

    return store


def owe(db: sqlite3.Connection, answer: CommandAnswer) -> None:
    """Write down its answer."""
    db.execute(
        "UPDATE command SET state = 'owed', outcome = ?, answer = ? WHERE number = ?",
        (int(answer.outcome), answer.body, answer.number),
    )


def answered(number: int, now: float) -> Operation[None]:
    """Write down that its answer is a Package; those that are kept no longer go."""

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE command SET state = 'answered', answered = ? WHERE number = ?", (now, number)
        )
        db.execute(
            "DELETE FROM command WHERE state = 'answered' AND number <"
            " (SELECT min(number) FROM (SELECT number FROM command ORDER BY number DESC LIMIT ?))",
            (KEPT,),
        )

    return store


def under_way(journal: Journal) -> list[KnownCommand]:
    """Return those without an answer under way, the first first."""
    return _known(
        journal.read(f"SELECT {_ROW} FROM command WHERE state <> 'answered' ORDER BY number")
    )


def listing(journal: Journal, limit: int) -> list[KnownCommand]:
    """Return the newest, the last first."""
    return _known(journal.read(f"SELECT {_ROW} FROM command ORDER BY number DESC LIMIT ?", limit))


def note_held(kind: str, *, held: bool) -> Operation[None]:
    """Write down that a kind of what is posted waits over satellite, or no longer."""
    sql = "INSERT OR IGNORE INTO held_kind VALUES (?)" if held else _LET_GO

    def store(db: sqlite3.Connection) -> None:
        db.execute(sql, (kind,))

    return store


_LET_GO = "DELETE FROM held_kind WHERE kind = ?"


def held_kinds(journal: Journal) -> set[str]:
    """Return the kinds that wait over satellite."""
    return {kind for (kind,) in journal.read("SELECT kind FROM held_kind")}


def count_start(db: sqlite3.Connection) -> int:
    """Count this start of the agent; return how many there were."""
    ((starts,),) = db.execute(
        "INSERT INTO agent_start VALUES (1, 1) ON CONFLICT (one) DO UPDATE SET"
        " starts = starts + 1 RETURNING starts"
    ).fetchall()
    return int(starts)


def starts(journal: Journal) -> int:
    """Return how often the agent has begun on this journal."""
    return int(journal.read("SELECT coalesce(max(starts), 0) FROM agent_start")[0][0])


def boots_ended(journal: Journal) -> set[str]:
    """Return the boots in which the hub's command had the machine start anew."""
    rows = journal.read(
        "SELECT boot FROM command WHERE verb = ? AND boot <> '' AND coalesce(outcome, ?) = ?",
        *(BY_NAME["reboot"].number, int(CommandOutcome.DONE), int(CommandOutcome.DONE)),
    )
    return {boot for (boot,) in rows}


def _known(rows: list[Any]) -> list[KnownCommand]:
    return [_of_row(*row) for row in rows]


def _of_row(
    number: int,
    verb: int,
    arguments: bytes,
    channel: str,
    came: float,
    state: str,
    boot: str,
    outcome: int | None,
    answer: bytes | None,
    done: float | None,
) -> KnownCommand:
    command, is_readable = _command(verb, arguments)
    reply = _answer(number, outcome, answer)
    if reply is None and state in ("owed", "answered"):
        reply = CommandAnswer(number, CommandOutcome.FAILED, answer_text.pack(ANSWER_DAMAGED))
    return KnownCommand(number, command, channel, came, state, boot, reply, done, is_readable)


def _command(verb: int, arguments: bytes) -> tuple[RemoteCommand, bool]:
    """Return it, and whether it is whole and known."""
    try:
        command = read_command(verb, b"", *strict_cbor.loads(bytes(arguments)))
        verb_of(command)
    except (RemoteProtocolError, ValueError, TypeError, NotACommand):
        return RemoteCommand(verb), False
    return command, True


def _answer(number: int, outcome: int | None, body: bytes | None) -> CommandAnswer | None:
    with suppress(ValueError):
        if outcome is not None:
            return CommandAnswer(number, CommandOutcome(outcome), bytes(body or b""))
    return None
