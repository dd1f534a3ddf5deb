"""Checks that an arriving command is from the hub, is new, and is allowed on this kit."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from typing import Protocol

import trio

from fieldagent.agent.journal import commands
from fieldagent.package.package import Channel, CommandAnswer, CommandOutcome
from fieldagent.system.elapsed_time import ElapsedTime
from fieldagent.wire import answer_text
from fieldagent.wire.command import NotACommand, RemoteCommand, get_verb
from fieldagent.wire.proof import is_command_proved

AGE_MAX_S = 5 * 86_400
"""Maximum age, in seconds, of a command that is carried out. The satellite operator keeps messages
for up to this time."""
NOT_PROVED = (
    "a command with a wrong proof: the hub did not send it, or satellite-key or hub-token"
    " differs from the hub's (`fieldagent hub device key`, `token`)"
)


class ReceivedCommand(Protocol):
    """The received message that contains the command."""

    now: float
    channel: str | None
    duplicates: int
    commands: int
    troubles: list[str]


class CommandGate:
    """Accepts or refuses commands. The commands are authenticated with `keys`. `allowed_verbs`
    contains the names of the verbs that this kit carries out.
    """

    def __init__(self, keys: Sequence[bytes] = (), allowed_verbs: Collection[str] = ()) -> None:
        self._keys = keys
        self.allowed = allowed_verbs
        self.news = trio.Event()
        """Event that is set when a command has arrived. A new event then replaces it."""

    def can_prove(self) -> bool:
        """Return True if the kit shares a key with the hub. A kit without a shared key accepts no
        commands.
        """
        return bool(self._keys)

    def store_command(
        self,
        db: sqlite3.Connection,
        command_number: int,
        command: RemoteCommand,
        clock: ElapsedTime,
        result: ReceivedCommand,
    ) -> None:
        """Store a command that is authenticated and new. If the command is too old or not allowed,
        also store the answer that refuses it.
        """
        if not is_command_proved(command_number, command, self._keys):
            # Send no answer to an unauthenticated command, because otherwise anyone could make the
            # kit pay for answers.
            result.troubles.append(NOT_PROVED)
            return
        if commands.is_known(db, command_number):
            result.duplicates += 1
            return
        refusal = self._find_refusal(db, command_number, command, clock, result.now)
        commands.store_command(
            db, command_number, command, result.channel or Channel.RADIO, result.now
        )
        if refusal:
            body = answer_text.pack(refusal)
            commands.store_answer(db, CommandAnswer(command_number, CommandOutcome.REFUSED, body))
        result.commands += 1

    def wake(self) -> None:
        """Wake the task that carries out commands. Call this method when the command is on disk."""
        self.news.set()
        self.news = trio.Event()

    def _find_refusal(
        self,
        db: sqlite3.Connection,
        number: int,
        command: RemoteCommand,
        clock: ElapsedTime,
        now: float,
    ) -> str:
        if number < (last := commands.read_last_number(db)):
            return f"command {last} arrived before it, send it again"
        if clock.source() and clock.date(now) - number > AGE_MAX_S:
            return "it is more than 5 days old, send it again"
        try:
            verb = get_verb(command)
        except NotACommand as wrong:
            return str(wrong)
        if verb.name not in self.allowed:
            return f"{verb.name} is not in remote-commands of this kit"
        return ""
