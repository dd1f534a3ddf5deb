"""The journal: shared syncs, damage, a full disk, and real power cuts."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio
import trio.testing

from fieldagent.agent.journal.files import JournalFiles
from fieldagent.agent.journal.journal import DISK_USABLE_NOTICE, Journal
from fieldagent.agent.journal.schema import JOURNAL
from fieldagent.store.group import NotOnDisk, StoreFailed, StoreFull
from fieldagent.store.schema import Schema
from fieldagent.store.trouble import WrittenByOtherVersion
from tests.machine import tool
from tests.processes import PATIENCE, started


def remember(text: str) -> Callable[[sqlite3.Connection], None]:
    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "INSERT INTO inbound (request_id, sender, body, received) VALUES (?, '1', ?, 0)",
            (text, json.dumps({"requestId": text})),
        )

    return store


def remembered(journal: Journal) -> list[str]:
    return [row[0] for row in journal.read("SELECT request_id FROM inbound ORDER BY number")]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.sqlite3")
    yield journal
    journal.close()


async def test_concurrent_commits_share_disk_syncs(journal: Journal) -> None:
    async def caller(name: int) -> None:
        for number in range(20):
            await journal.commit(remember(f"{name}.{number}"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        async with trio.open_nursery() as callers:
            for name in range(16):
                callers.start_soon(caller, name)
        nursery.cancel_scope.cancel()
    assert len(remembered(journal)) == 320
    assert journal.commits <= 320 / 8


async def test_journal_returns_to_disk_after_two_sos_on_full_disk(
    tmp_path: Path,
) -> None:
    """Two SOS at the same moment find the disk full. The second one was already in memory, and it
    moved the journal again, so that it never returned to the disk.
    """
    path = tmp_path / "journal.sqlite3"
    journal = Journal(path, may_leave_disk=True)

    def no_room_at_first(text: str) -> Callable[[sqlite3.Connection], None]:
        tries: list[str] = []

        def store(db: sqlite3.Connection) -> None:
            tries.append(text)
            if len(tries) == 1:
                raise StoreFull("the disk is full")
            remember(text)(db)

        return store

    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        for text in ("first", "second"):
            await journal.commit_urgent(no_room_at_first(text))
            assert journal.not_on_disk == "the disk is full"
        await journal.return_to_disk(idle=lambda: True)
        assert journal.not_on_disk == "" and journal.path == path
        await journal.commit(remember("third"))
        nursery.cancel_scope.cancel()
    with closing(sqlite3.connect(path)) as disk:
        rows = disk.execute("SELECT request_id FROM inbound ORDER BY number").fetchall()
    assert rows == [("first",), ("second",), ("third",)]
    journal.close()


async def test_failed_commit_does_not_fail_concurrent_commits(journal: Journal) -> None:
    failures = []

    async def caller(name: str) -> None:
        try:
            await journal.commit(remember(name))
        except sqlite3.IntegrityError:
            failures.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        async with trio.open_nursery() as callers:
            for name in ["a", "b", "a", "c"]:
                callers.start_soon(caller, name)
        nursery.cancel_scope.cancel()
    assert sorted(remembered(journal)) == ["a", "b", "c"]
    assert failures == ["a"]


async def test_pending_commit_is_stored_when_agent_stops(journal: Journal) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        nursery.start_soon(journal.commit, remember("last words"))
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert remembered(journal) == ["last words"]


async def test_commit_after_stop_is_rejected_at_once(journal: Journal) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    with trio.fail_after(PATIENCE), pytest.raises(StoreFailed, match="program stops"):
        await journal.commit(remember("too late"))


def broken(db: sqlite3.Connection) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    raise error


async def test_disk_commit_is_rejected_while_journal_is_in_memory(
    tmp_path: Path,
) -> None:
    """This includes a commit that was ordered earlier and waited behind the failed commit. Its
    Package would leave from memory, and again after the next start.
    """
    journal = Journal(tmp_path / "journal.sqlite3", may_leave_disk=True)
    with closing(journal):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.run)
            await journal.commit_on_disk(remember("on the disk"))
            journal.require_room()
            with pytest.raises(NotOnDisk):
                await journal.commit(broken)
            with pytest.raises(NotOnDisk, match="cannot store data"):
                await journal.commit_on_disk(remember("ordinary"))
            await journal.commit_urgent(remember("urgent"))
            nursery.cancel_scope.cancel()
        assert remembered(journal) == ["on the disk", "urgent"]


async def test_disk_error_stops_journal_permanently(journal: Journal) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        with pytest.raises(StoreFailed, match="cannot store data"):
            await journal.commit(broken)
        with pytest.raises(StoreFailed):
            await journal.commit(remember("after"))
    assert journal.failed is not None
    assert remembered(journal) == []


async def test_journal_continues_after_full_disk_without_loss(journal: Journal) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        await journal.commit(remember("before"))
        pages = journal.read("PRAGMA page_count")[0][0]
        await journal.commit(lambda db: db.execute(f"PRAGMA max_page_count={pages}").fetchall())
        with pytest.raises(StoreFull):
            await journal.commit(remember("x" * 100_000))
        await journal.commit(lambda db: db.execute("PRAGMA max_page_count=100000").fetchall())
        await journal.commit(remember("after"))
        nursery.cancel_scope.cancel()
    assert remembered(journal) == ["before", "after"]


async def _full(journal: Journal) -> None:
    pages = journal.read("PRAGMA page_count")[0][0]
    await journal.commit(lambda db: db.execute(f"PRAGMA max_page_count={pages}").fetchall())


async def test_persist_waits_until_disk_has_space(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr("fieldagent.agent.journal.journal.FULL_PAUSE_S", 0.01)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        await _full(journal)
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as waiting:
                waiting.start_soon(journal.persist, remember("x" * 100_000))
                while not journal.full:
                    await trio.sleep(0.01)
                assert remembered(journal) == []
                await journal.commit(
                    lambda db: db.execute("PRAGMA max_page_count=100000").fetchall()
                )
        assert (journal.full, len(remembered(journal))) == (False, 1)
        nursery.cancel_scope.cancel()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


async def test_persist_raises_on_full_disk_when_agent_stops(journal: Journal) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        await _full(journal)
        with trio.fail_after(PATIENCE), trio.CancelScope(shield=True):
            async with trio.open_nursery() as waiting:
                waiting.start_soon(_is_refused, journal)
                await trio.testing.wait_all_tasks_blocked(0.1)
                journal.record_stop()
        nursery.cancel_scope.cancel()


async def _is_refused(journal: Journal) -> None:
    with pytest.raises(StoreFull):
        await journal.persist(remember("x" * 100_000))


@pytest.mark.parametrize("how_far", ["taken", "on its way"])
async def test_sos_committed_during_disk_check_delays_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how_far: str
) -> None:
    """The SOS is only in memory. An agent that restarted now would lose it."""
    journal, taken, goes_on = Journal(tmp_path / "journal.sqlite3"), [False], threading.Event()
    monkeypatch.setattr(JournalFiles, "can_write_to_disk", lambda files, writing: look())

    def take_in(db: sqlite3.Connection) -> None:
        goes_on.wait(PATIENCE)
        taken[0] = True

    def look() -> bool:
        if how_far == "taken":
            goes_on.set()
            trio.from_thread.run(journal.commit, take_in)
        else:
            trio.from_thread.run(set_out)
        return True

    async def set_out() -> None:
        nursery.start_soon(journal.commit, take_in)
        while not journal.is_busy:
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        journal._files.give_up_disk("the disk cannot store data")
        await journal.return_to_disk(idle=lambda: not taken[0])
        assert journal.failed is None
        goes_on.set()
        await journal.commit(lambda _: None)
        assert taken[0]
        monkeypatch.setattr(JournalFiles, "can_write_to_disk", lambda files, writing: True)
        await journal.return_to_disk(idle=lambda: not taken[0])
        assert journal.failed is None
        await journal.return_to_disk(idle=lambda: True)
        assert str(journal.failed) == DISK_USABLE_NOTICE
    journal.close()


NO_THREAD = """
import resource, sys, trio
from pathlib import Path
from fieldagent.agent.journal.journal import Journal

async def main():
    journal = Journal(Path(sys.argv[1]))
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**20, hard))
        try:
            await journal.commit(lambda db: None)
        except RuntimeError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        print(await journal.commit(lambda db: "stored"))
        nursery.cancel_scope.cancel()
    journal.close()
trio.run(main)
"""


def test_commit_raises_if_no_thread_can_start(tmp_path: Path) -> None:
    """Regression: the callers could not even be cancelled. The next commit is stored again."""
    command = [sys.executable, "-c", NO_THREAD, str(tmp_path / "journal.sqlite3")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert result.stdout.splitlines() == ["can't start new thread", "stored"]


ACKNOWLEDGE = """
import sqlite3, sys, trio
from pathlib import Path
from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.files import JournalFiles
from fieldagent.agent.journal.journal import Journal

async def main():
    journal = Journal(Path(sys.argv[1]))
    if sys.argv[2] == "off":
        journal._files.writer.execute("PRAGMA synchronous=OFF")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        for number in range(int(sys.argv[3])):
            await journal.commit(lambda db: db.execute(
                "INSERT INTO inbound (request_id, sender, body, received)"
                " VALUES (?, '1', ?, 0)", (str(number), '"' + "x" * 200 + '"')))
            print(number, flush=True)
        sys.stdin.read()
trio.run(main)
"""
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


def cut_power(directory: Path, synchronous: str, after: int) -> tuple[int, int]:
    """Return the acknowledged and the surviving commits of a writer whose disk loses power."""
    image, mount = directory / "disk.img", directory / "disk"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(32 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        command = [sys.executable, "-c", ACKNOWLEDGE, str(mount / "journal.sqlite3")]
        with started(
            [*command, synchronous, str(after)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as writer:
            assert writer.stdout is not None
            acknowledged = 0
            for line in writer.stdout:
                acknowledged = int(line) + 1
                if acknowledged == after:
                    handle = os.open(mount, os.O_RDONLY)
                    fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, struct.pack("i", NO_LOG_FLUSH))
                    os.close(handle)
                    writer.kill()
        subprocess.run(["umount", mount], check=True)
        # A new mount namespace may contain this mount too and keeps the stopped disk busy, so look
        # at a copy of the disk.
        left = directory / "left.img"
        subprocess.run(["cp", "--sparse=always", image, left], check=True)
        subprocess.run(["mount", "-o", "loop", left, mount], check=True)
        journal = Journal(mount / "journal.sqlite3")
        numbers = [int(text) for text in remembered(journal)]
        journal.close()
        assert numbers == list(range(len(numbers)))
        return acknowledged, len(numbers)
    finally:
        subprocess.run(["umount", mount], check=False)


def can_mount(directory: Path) -> str | None:
    tool("mkfs.ext4", "e2fsprogs")
    if os.geteuid() != 0:
        return "needs root to mount a disk whose power can be cut"
    try:
        os.close(os.open("/dev/loop-control", os.O_RDWR))
    except OSError as error:
        return f"needs loop devices: {errno.errorcode[error.errno or 0]}"
    return None


@pytest.mark.parametrize("after", [1, 17, 100])
def test_acknowledged_commits_survive_power_cut(tmp_path: Path, after: int) -> None:
    if why := can_mount(tmp_path):
        pytest.skip(why)
    acknowledged, survived = cut_power(tmp_path, "full", after)
    assert acknowledged >= after
    assert survived >= acknowledged


def test_power_cut_loses_commits_without_sync(tmp_path: Path) -> None:
    if why := can_mount(tmp_path):
        pytest.skip(why)
    acknowledged, survived = cut_power(tmp_path, "off", 100)
    assert survived < acknowledged


def test_journal_of_first_release_is_migrated_to_next_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.sqlite3"
    with closing(Journal(path)) as journal:
        journal._files.writer.execute(
            "INSERT INTO package (id, body, digest, accepted) VALUES (5, '{}', x'00', 1.0)"
        )
    added = "ALTER TABLE package ADD COLUMN later TEXT NOT NULL DEFAULT 'x';"
    now = JOURNAL.version
    later = Schema(now + 1, JOURNAL.tables + added, {**JOURNAL.steps, now: added})
    monkeypatch.setattr("fieldagent.agent.journal.files.JOURNAL", later)
    with closing(Journal(path)) as journal:
        assert journal.read("SELECT id, later FROM package") == [(5, "x")]
        assert journal.read("PRAGMA user_version") == [(now + 1,)]
    monkeypatch.undo()
    with pytest.raises(
        WrittenByOtherVersion, match=f"it has version {now + 1}, this program knows {now}"
    ):
        Journal(path)
    assert not list(tmp_path.glob("*.bad"))


def test_journal_from_before_first_release_is_rejected_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite3"
    Journal(path).close()
    path.with_name("journal.sqlite3-mark").unlink()
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version={JOURNAL.first - 1}")
    with pytest.raises(
        WrittenByOtherVersion, match=r"before its first release .*, and is not changed"
    ):
        Journal(path)
    assert not list(tmp_path.glob("*.bad"))
