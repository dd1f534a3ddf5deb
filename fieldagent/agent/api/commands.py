"""`GET /api/commands`: lists the hub's commands to this kit, and their answers."""

from __future__ import annotations

from typing import Any

from fieldagent.agent.assembly import Parts
from fieldagent.agent.journal import commands
from fieldagent.agent.journal.commands import StoredCommand
from fieldagent.wire.command import format_command
from fieldagent.wire.command_proof import format_answer

LIST_MAX = 50


def list_commands(parts: Parts) -> dict[str, Any]:
    """Return the names of the allowed commands, and the last received commands, newest first."""
    newest = commands.list_newest(parts.journal, LIST_MAX)
    date = parts.journal.clock.date
    return {
        "allowed": list(parts.inbox.commands.allowed),
        "commands": [
            {
                "number": each.number,
                "command": format_command(each.command),
                "channel": each.channel,
                "came": date(each.arrived_at),
                "state": each.state,
                **_encode_command(each),
                "answered": None if each.answered_at is None else date(each.answered_at),
            }
            for each in newest
        ],
    }


def _encode_command(command_record: StoredCommand) -> dict[str, str | None]:
    if command_record.answer is None:
        return {"outcome": None, "answer": None}
    return {
        "outcome": command_record.answer.outcome.name.lower(),
        "answer": format_answer(command_record.command.verb, command_record.answer),
    }
