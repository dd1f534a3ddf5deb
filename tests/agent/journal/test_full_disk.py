"""A real agent on a disk that other programs have filled."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import trio

from fieldagent.agent.journal.journal import (
    RESERVE_FREE_MIN_BYTES,
    RESERVE_PAGES,
    Journal,
    Operation,
)
from fieldagent.store.group import StoreFull
from tests.breaking import Put, environment
from tests.machine import fill, small_disk
from tests.processes import MODULE, Agent, sky, until

MIB = 1 << 20
NO_RESERVE = RESERVE_FREE_MIN_BYTES - MIB
"""Free space below which the journal takes no reserve."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as place:
        yield place


def agent_on(disk: Path, home: Path, **environment: str) -> Agent:
    hook = f"cat >>{home}/came && echo handed"
    settings = {"state-directory": str(disk / "state"), "inbound-hook": hook}
    return Agent(home, settings, MODULE, **environment)


def test_last_disk_space_is_reserved_for_sos(disk: Path, tmp_path: Path) -> None:
    with sky(tmp_path), agent_on(disk, tmp_path) as agent:
        logs = fill(disk, leave=MIB)
        refused = agent.post("ordinary")
        assert refused.status == 507
        assert "reserved for an SOS; free some space" in refused.body["detail"]
        assert agent.post("help", priority=100).body["status"] == "Delivered"
        logs.unlink()
        assert agent.post("ordinary").body["status"] == "Delivered"
        assert agent.stop() == 0


def test_sos_is_stored_and_delivered_on_full_disk(disk: Path, tmp_path: Path) -> None:
    with sky(tmp_path), agent_on(disk, tmp_path) as agent:
        log = disk / "state/journal.sqlite3-wal"
        until(lambda: log.stat().st_size >= RESERVE_PAGES * 4096)
        assert agent.post("before").body["status"] == "Delivered"
        fill(disk)
        for number in range(3):
            assert agent.post(f"help {number}", priority=100).body["status"] == "Delivered"
            assert agent.post("ordinary").status == 507
        assert agent.stop() == 0


@pytest.mark.full
def test_received_item_is_stored_once_disk_has_space(disk: Path, tmp_path: Path) -> None:
    fill(disk, leave=NO_RESERVE)
    with sky(tmp_path) as above, agent_on(disk, tmp_path) as agent:
        assert agent.post("before").body["status"] == "Delivered"
        logs = fill(disk)
        above.type("mt hello")
        agent.expect("the disk is full: the agent waits")
        assert agent.post("ordinary").status == 507
        shown = subprocess.run(
            [*MODULE, "status", "--port", str(agent.port)], capture_output=True, text=True
        )
        assert "the disk is full" in shown.stdout
        logs.unlink()
        agent.expect("there is space on the disk again")
        agent.expect("handed")
        assert "hello" in (tmp_path / "came").read_text()
        assert agent.post("after").body["status"] == "Delivered"
        assert agent.stop() == 0


@pytest.mark.full
def test_sos_is_sent_from_memory_when_disk_is_full(disk: Path, tmp_path: Path) -> None:
    """Packages that waited for space continue too: the modem is free for the SOS."""
    fill(disk, leave=NO_RESERVE)
    quick = environment(tmp_path, Put("fieldagent.agent.agent:DISK_RETRY_INTERVAL_S", 0.2))
    with sky(tmp_path) as above, agent_on(disk, tmp_path, **quick) as agent:
        assert agent.post("before").body["status"] == "Delivered"
        logs = fill(disk)
        above.type("mt hello")
        agent.expect("the disk is full: the agent waits")
        answer = agent.post("help", priority=100).body
        assert (answer["status"], answer["notOnDisk"]) == ("Delivered", "the disk is full")
        agent.expect("handed")
        assert agent.post("ordinary").status == 507
        logs.unlink()
        agent.expect("the journal is on the disk again")
        assert agent.post("after").body["status"] == "Delivered"
        assert agent.stop() == 0
        with agent_on(disk, tmp_path) as again:
            texts = [each["text"] for each in again.call("GET", "/api/packages").body["packages"]]
            assert texts == ["after", "help", "before"]


def test_agent_stops_cleanly_when_disk_is_full(disk: Path, tmp_path: Path) -> None:
    fill(disk, leave=NO_RESERVE)
    with sky(tmp_path) as above, agent_on(disk, tmp_path) as agent:
        logs = fill(disk)
        above.type("mt hello")
        agent.expect("the disk is full: the agent waits")
        assert agent.stop() == 0
        assert not any("Traceback" in line for line in agent.lines)
        logs.unlink()
        with agent_on(disk, tmp_path) as again:
            again.expect("handed")
            assert again.stop() == 0


def note(text: str) -> Operation[None]:
    def store(db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE IF NOT EXISTS note (text TEXT)")
        db.execute("INSERT INTO note VALUES (?)", (text,))

    return store


@pytest.mark.full
@pytest.mark.parametrize("notes", [0, 700, 3000])
async def test_journal_reserve_accepts_commits_on_full_disk(disk: Path, notes: int) -> None:
    async with journal_on(disk) as journal:
        await journal.refill_reserve()
        # This holds for each length of SQLite's log, which starts again after 1 000 pages.
        for number in range(notes):
            await journal.commit(note(f"note {number}"))
        logs = fill(disk)
        for number in range(1500):
            await journal.commit(note(f"SOS {number}"))
        with pytest.raises(StoreFull):
            await journal.commit(note("x" * 10_000_000))
        await journal.commit(note("and on it goes"))
        assert journal.read("SELECT count(*) FROM note") == [(notes + 1501,)]
        with pytest.raises(StoreFull):
            for _ in range(2 * RESERVE_PAGES):
                await journal.commit(note("x" * 4000))
        logs.unlink()
        await journal.refill_reserve()
        assert journal.read("PRAGMA freelist_count")[0][0] >= RESERVE_PAGES


async def test_refill_of_reserve_leaves_short_log_and_default_secure_delete(disk: Path) -> None:
    """A card wears out. Debian's SQLite overwrites deleted data by default."""
    async with journal_on(disk) as journal:
        await journal.refill_reserve()
        with closing(sqlite3.connect(journal.path)) as looker:
            ((_, frames, _),) = looker.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            assert frames < 100
            assert looker.execute("PRAGMA freelist_count").fetchone()[0] >= RESERVE_PAGES
        await journal.commit(note("secret"))
        await journal.commit(lambda db: db.execute("DELETE FROM note"))
        (state,) = await journal.commit(lambda db: db.execute("PRAGMA secure_delete").fetchall())
        with closing(sqlite3.connect(":memory:")) as other:
            assert [state] == other.execute("PRAGMA secure_delete").fetchall()


async def test_existing_reserve_is_not_refilled(disk: Path) -> None:
    async with journal_on(disk) as journal:
        await journal.refill_reserve()
        commits = journal.commits
        await journal.refill_reserve()
        assert journal.commits == commits


async def test_reserve_is_not_allocated_when_disk_space_is_low(disk: Path) -> None:
    async with journal_on(disk) as journal:
        fill(disk, leave=NO_RESERVE)
        await journal.refill_reserve()
        assert journal.read("PRAGMA freelist_count") == [(0,)]


@asynccontextmanager
async def journal_on(disk: Path) -> AsyncIterator[Journal]:
    journal = Journal(disk / "journal.sqlite3")
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.run)
            yield journal
            nursery.cancel_scope.cancel()
    finally:
        journal.close()
