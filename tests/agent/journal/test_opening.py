"""A good journal is never set aside. The agent reports the obstacle, and waiting Packages continue
afterwards. Meanwhile an SOS is sent from memory, and its caller gets a note about that.

Real processes, because the faults occurred there: a full disk and a single read error set good
journals aside as `.bad`, and an agent that could only read started and refused the first post.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from fieldagent.agent.journal.high_water import HighWaterFile
from tests.breaking import Put, environment
from tests.machine import fill, mounted, small_disk, tool
from tests.processes import MODULE, agent, sky

Obstacle = Callable[[Path], AbstractContextManager[None]]
"""Takes the state directory."""


@contextmanager
def newer(state: Path) -> Iterator[None]:
    before = set_version(state, 99)
    yield
    set_version(state, before)


def set_version(state: Path, version: int) -> int:
    """Set the version as a program of that version does, and return the earlier one."""
    with closing(sqlite3.connect(state / "journal.sqlite3")) as journal:
        (before,) = journal.execute("PRAGMA user_version").fetchone()
        journal.execute(f"PRAGMA user_version={version}")
    mark = HighWaterFile(state / "journal.sqlite3-mark")
    mark.open_as(version)
    mark.close()
    return int(before)


@contextmanager
def locked(state: Path) -> Iterator[None]:
    other = sqlite3.connect(state / "journal.sqlite3")
    other.execute("BEGIN EXCLUSIVE")
    yield
    other.close()


@contextmanager
def folder_instead(state: Path) -> Iterator[None]:
    journal = state / "journal.sqlite3"
    journal.rename(state / "kept")
    journal.mkdir()
    yield
    journal.rmdir()
    (state / "kept").rename(journal)


@contextmanager
def immutable(state: Path) -> Iterator[None]:
    journal = state / "journal.sqlite3"
    if os.geteuid() or subprocess.run(["chattr", "+i", journal], capture_output=True).returncode:
        pytest.skip("no file can be made immutable here")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", journal], check=True)


@contextmanager
def on_own_disk(state: Path, *options: str) -> Iterator[None]:
    kept = state.with_name("kept")
    shutil.copytree(state, kept)
    with mounted(state, "-t", "tmpfs", "-o", ",".join(["rw", "mode=0755", *options]), "tmpfs"):
        for part in kept.iterdir():
            shutil.copy2(part, state)
        yield
    shutil.rmtree(kept)


@contextmanager
def read_only(state: Path) -> Iterator[None]:
    with on_own_disk(state):
        subprocess.run(["mount", "-o", "remount,ro", state], check=True)
        yield


@contextmanager
def unreadable(state: Path) -> Iterator[None]:
    """The call that reads the start of the file fails once, as on a worn card."""
    yield


@contextmanager
def full(state: Path) -> Iterator[None]:
    """The disk is full, and the journal has no log, as after another program has read it."""
    with on_own_disk(state, "size=64m"):
        with closing(sqlite3.connect(state / "journal.sqlite3")) as other:
            other.execute("SELECT * FROM package").fetchall()
        fill(state)
        yield


@contextmanager
def damaged_on_full_disk(state: Path) -> Iterator[None]:
    with on_own_disk(state, "size=64m"):
        for part in ("-wal", "-shm"):
            (state / f"journal.sqlite3{part}").unlink()
        with (state / "journal.sqlite3").open("r+b") as file:
            file.seek(2 * 4096)
            file.write(b"\xa5" * 4096)
        fill(state)
        yield


OBSTACLES: list[tuple[Obstacle, str]] = [
    (newer, "was written by a later version of fieldagent"),
    (locked, "another program has locked it"),
    (folder_instead, "it is a folder"),
    (immutable, "see that this program may write"),
    (read_only, "mounted for reading only"),
    (unreadable, "the disk does not read or write it"),
    (full, "the disk is full"),
    (damaged_on_full_disk, "the disk is full"),
]
RETURNS_TO_DISK = (read_only, full)
"""The data that was read is written back. Otherwise the agent restarts with the content of the
disk."""


def command_for(obstacle: Obstacle, state: Path) -> list[str]:
    if obstacle is not unreadable:
        return MODULE
    inject = "inject=pread64:error=EIO:when=1+"
    watched = ["-P", str(state / "journal.sqlite3"), "-e", inject]
    return [tool("strace", "strace"), "-D", "-f", "-qq", *watched, *MODULE]


@pytest.mark.parametrize(("obstacle", "words"), OBSTACLES, ids=lambda v: getattr(v, "__name__", ""))
def test_sos_is_delivered_in_every_state_of_disk(
    tmp_path: Path, obstacle: Obstacle, words: str
) -> None:
    state = tmp_path / "state"
    waiting = {"message": {"content": "still here"}}
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        assert kit.call("POST", "/api/package/async", waiting).status == 202
        assert kit.stop() == 0
    with sky(tmp_path) as above:
        with obstacle(state), agent(tmp_path, {}, command_for(obstacle, state)) as kit:
            output = "\n".join(kit.output()).lower()
            assert words.lower() in output
            assert "traceback" not in output
            refused = kit.post("ordinary")
            assert refused.status == 507
            assert words.lower() in refused.body["detail"].lower()
            answer = kit.post("help", priority=100)
            assert answer.body["status"] == "Delivered", answer
            assert words.lower() in answer.body["notOnDisk"].lower()
            health = kit.call("GET", "/api/health")
            assert health.status == 503
            assert words.lower() in str(health.body).lower()
            notices = kit.call("GET", "/api/status").body["notices"]
            assert any(words.lower() in notice.lower() for notice in notices)
            shown = subprocess.run(
                [*MODULE, "sos", "more help", "--yes", "--port", str(kit.port)],
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert "not on the disk, and lost if power fails" in shown.stdout, shown
            assert kit.stop() == 0
        assert not list(state.glob("*.bad"))
        above.expect("help")
    with sky(tmp_path), agent(tmp_path) as kit:
        kit.call("POST", "/api/package", waiting | {"id": 1})
        assert kit.call("GET", "/api/package/1").body["status"] == "Delivered"
        assert not list(state.glob("*.bad"))
        assert kit.call("GET", "/api/health").status == 200


@pytest.mark.full
@pytest.mark.parametrize(
    "obstacle", [newer, folder_instead, read_only, full], ids=lambda v: v.__name__
)
def test_journal_returns_to_disk_when_obstacle_is_gone(tmp_path: Path, obstacle: Obstacle) -> None:
    state = tmp_path / "state"
    quick = environment(tmp_path, Put("fieldagent.agent.agent:DISK_RETRY_INTERVAL_S", 0.2))
    with agent(tmp_path) as kit:
        assert kit.stop() == 0
    with ExitStack() as obstacles, sky(tmp_path):
        obstacles.enter_context(obstacle(state))
        with agent(tmp_path, {}, MODULE, **quick) as kit:
            number = kit.post("help", priority=100).body["id"]
            if obstacle not in RETURNS_TO_DISK:
                kit.call("DELETE", "/api/sos")
                obstacles.close()
                kit.expect("the disk works again; the agent restarts")
                assert kit.wait() == 74
                return
            subprocess.run(["mount", "-o", "remount,rw", state], check=True)
            (state / "logs").unlink(missing_ok=True)
            kit.expect("the journal is on the disk again")
            assert kit.call("GET", "/api/health").status == 200
            assert kit.post("ordinary").body["status"] == "Delivered"
            assert kit.stop() == 0
        with agent(tmp_path) as kit:
            assert kit.call("GET", f"/api/package/{number}").body["text"] == "help"


def test_agent_starts_on_full_disk_after_clean_stop(tmp_path: Path) -> None:
    """On the disk: the log is kept, and the reserve is in it."""
    with small_disk(tmp_path / "disk") as disk, sky(tmp_path):
        place = {"state-directory": str(disk / "state")}
        with agent(tmp_path, place) as kit:
            assert kit.post("before").body["status"] == "Delivered"
            assert kit.stop() == 0
        fill(disk)
        for number in range(3):
            with agent(tmp_path, place) as kit:
                assert kit.post("ordinary").status == 507
                answer = kit.post(f"help {number}", priority=100).body
                assert (answer["status"], answer.get("notOnDisk")) == ("Delivered", None)
                assert kit.stop() == 0


def test_reserve_is_allocated_before_first_post(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk") as disk,
        sky(tmp_path),
        agent(tmp_path, {"state-directory": str(disk / "state")}) as kit,
    ):
        fill(disk)
        answer = kit.post("help", priority=100)
        assert (answer.status, answer.body.get("notOnDisk")) == (200, None)
        assert kit.stop() == 0
