"""The recognition of repeated commands from the hub."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from fieldagent.agent.journal import commands
from fieldagent.agent.journal.schema import JOURNAL
from fieldagent.store.sqlite import connect
from fieldagent.wire.command import VERB_BY_NAME, RemoteCommand


def test_deleted_command_is_recognised_while_older_command_is_open(tmp_path: Path) -> None:
    command = RemoteCommand(VERB_BY_NAME["reboot"].number)
    newest = 2 * commands.COMMANDS_MAX
    with closing(connect(tmp_path / "journal", JOURNAL, is_checked=True)) as db:
        for number in range(1, newest + 1):
            commands.store_command(db, number, command, "Satellite", 0.0)
            if number > 1:
                commands.mark_answered(number, 0.0)(db)
        kept = [number for (number,) in db.execute("SELECT number FROM command ORDER BY number")]
        assert kept == [1, *range(newest - commands.COMMANDS_MAX + 1, newest + 1)]
        assert all(commands.is_known(db, number) for number in range(1, newest + 1))
        assert not commands.is_known(db, newest + 1)
