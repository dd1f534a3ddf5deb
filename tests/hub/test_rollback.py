"""A rollback by one version: the errors of hub and agent about later tables match the docs, and the
described steps work.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from fieldagent.agent.journal.high_water import HighWaterFile
from fieldagent.hub.store.opening import is_postgres
from fieldagent.store.sqlite import compute_application_id
from tests.processes import MODULE, PATIENCE, administer, agent, hub

DOCS = Path(__file__).parents[2] / "docs/how-to"
ROLLBACK = (DOCS / "update.md").read_text().partition("\n## Rollback\n")[2]
CODE = int(re.findall(r"exit code ([0-9]+)", ROLLBACK)[0])
REMEDY = "install the later version again, or put back the copy from before the upgrade"


def read_documented_refusal() -> str:
    """Return the text of the docs as a pattern that accepts any version numbers."""
    (line,) = re.findall(r"^> … (.+)$", ROLLBACK, re.MULTILINE)
    return re.sub("[0-9]+", "[0-9]+", re.escape(line))


def mark_as_later(database: str) -> None:
    """Set the version as a later program leaves it."""
    if is_postgres(database):
        with psycopg.connect(database) as connection:
            connection.execute("UPDATE fieldagent_schema SET version = version + 1")
        return
    version = raise_version(Path(database))
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"PRAGMA application_id = {compute_application_id(version)}")


def raise_version(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        ((version,),) = connection.execute("PRAGMA user_version")
        connection.execute(f"PRAGMA user_version = {version + 1}")
    return int(version) + 1


def run_fieldagent(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MODULE, *words], capture_output=True, text=True, timeout=PATIENCE)


COMMANDS: Sequence[Sequence[str]] = [
    ("user", "list"),
    ("database", "migrate"),
    ("init", "Alps"),
    ("database", "restored"),
    ("run",),
]


@pytest.mark.full
def test_hub_commands_reject_a_database_of_a_later_version_as_documented(
    database: str, tmp_path: Path
) -> None:
    administer(database, "init", "Alps")
    mark_as_later(database)
    for words in COMMANDS:
        done = run_fieldagent("hub", *words, "--database", database)
        assert (words, done.returncode) == (words, CODE), done.stderr
        assert re.search(read_documented_refusal(), done.stderr), done.stderr
        assert "Traceback" not in done.stderr


def test_hub_starts_with_the_copy_from_before_the_upgrade(tmp_path: Path) -> None:
    database, copy = tmp_path / "hub.sqlite3", tmp_path / "copy.sqlite3"
    administer(str(database), "init", "Alps")
    administer(str(database), "database", "backup", str(copy))
    mark_as_later(str(database))
    with pytest.raises(AssertionError, match=read_documented_refusal()):
        administer(str(database), "workspace", "list")
    for end in ("", "-wal", "-shm"):
        database.with_name(database.name + end).unlink(missing_ok=True)
    shutil.copyfile(copy, database)
    administer(str(database), "database", "restored")
    with hub(tmp_path, {"database": str(database)}) as running:
        assert running.stop() == 0


def test_hub_uses_a_restored_copy_despite_a_leftover_wal(tmp_path: Path) -> None:
    """A person who restores a copy knows only one file, but a hub leaves its log beside that
    file.
    """
    database, copy = tmp_path / "hub.sqlite3", tmp_path / "copy.sqlite3"
    settings = {"database": str(database)}

    def users() -> list[str]:
        return [each["name"] for each in administer(str(database), "user", "list")]

    administer(str(database), "init", "Alps")
    with hub(tmp_path, settings) as running:
        administer(str(database), "user", "add", "Ada")
        administer(str(database), "database", "backup", str(copy))
        administer(str(database), "user", "add", "Ben")
        assert running.stop() == 0
    assert database.with_name("hub.sqlite3-wal").stat().st_size
    shutil.copyfile(copy, database)
    administer(str(database), "database", "restored")
    assert "Ada" in users() and "Ben" not in users()
    assert database.with_name("hub.sqlite3-wal.before").exists()
    with hub(tmp_path, settings) as running:
        administer(str(database), "user", "add", "Cid")
        assert running.stop() == 0
    assert "Cid" in users() and "Ben" not in users()


def test_agent_rejects_a_later_journal_and_uses_the_restored_copy(tmp_path: Path) -> None:
    settings = {"satellite-port": str(tmp_path / "nobody")}
    journal = tmp_path / "state/journal.sqlite3"
    waiting = {"message": {"content": "still here"}}
    with agent(tmp_path, settings) as kit:
        assert kit.call("POST", "/api/package/async", waiting).status == 202
        assert kit.stop() == 0
    with closing(sqlite3.connect(journal)) as before, closing(sqlite3.connect(tmp_path / "c")) as c:
        before.backup(c)
    mark = HighWaterFile(journal.with_name(f"{journal.name}-mark"))
    mark.open_as(raise_version(journal))
    mark.close()
    with agent(tmp_path, settings) as kit:
        refused = kit.post("ordinary")
        assert refused.status == 507
        assert re.search(read_documented_refusal(), refused.body["detail"]), refused.body
        assert re.search(read_documented_refusal(), "\n".join(kit.output()))
        kit.stop()
    for end in ("", "-wal", "-shm"):
        journal.with_name(journal.name + end).unlink(missing_ok=True)
    shutil.copyfile(tmp_path / "c", journal)
    with agent(tmp_path, settings) as kit:
        (left,) = kit.call("GET", "/api/queue").body["packages"]
        assert left["text"] == "still here"


def test_troubleshooting_page_contains_the_rollback_remedy() -> None:
    lines = (DOCS / "troubleshooting.md").read_text().splitlines()
    (line,) = [line for line in lines if "was written by a later version" in line]
    assert REMEDY in line
    assert REMEDY in read_documented_refusal().replace("\\", "")
