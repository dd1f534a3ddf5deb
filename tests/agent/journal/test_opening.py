"""A good journal is never set aside: what hinders a start is said, and what waits goes on after.

Real processes, as it was seen with them: a full disk and one read error made a `.bad` of good
journals, and an agent that could only read began, to refuse the first post.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.machine import mounted
from tests.processes import MODULE, agent, sky

Hindrance = Callable[[Path], AbstractContextManager[None]]
"""Given the state directory."""


@contextmanager
def newer(state: Path) -> Iterator[None]:
    journal = sqlite3.connect(state / "journal.sqlite3")
    (version,) = journal.execute("PRAGMA user_version").fetchone()
    journal.execute("PRAGMA user_version=99")
    journal.close()
    yield
    journal = sqlite3.connect(state / "journal.sqlite3")
    journal.execute(f"PRAGMA user_version={version}")
    journal.close()


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
def on_a_disk_of_its_own(state: Path, *options: str) -> Iterator[None]:
    kept = state.with_name("kept")
    shutil.copytree(state, kept)
    with mounted(state, "-t", "tmpfs", "-o", ",".join(["rw", *options]), "tmpfs"):
        for part in kept.iterdir():
            shutil.copy2(part, state)
        yield
    shutil.rmtree(kept)


@contextmanager
def read_only(state: Path) -> Iterator[None]:
    with on_a_disk_of_its_own(state):
        subprocess.run(["mount", "-o", "remount,ro", state], check=True)
        yield


@contextmanager
def unreadable(state: Path) -> Iterator[None]:
    """The system call that reads the file's head fails once, as on a worn card."""
    yield


HINDRANCES = [
    (newer, 76, "was written by a later version of fieldagent"),
    (locked, 74, "another program holds it"),
    (folder_instead, 74, "it is a folder"),
    (immutable, 74, "see that this program may write"),
    (read_only, 74, "mounted for reading only"),
    (unreadable, 74, "the disk does not read or write it"),
]


@pytest.mark.parametrize(
    ("hindrance", "code", "words"), HINDRANCES, ids=lambda v: getattr(v, "__name__", "")
)
def test_what_hinders_a_start_is_said_and_costs_nothing(
    tmp_path: Path, hindrance: Hindrance, code: int, words: str
) -> None:
    state = tmp_path / "state"
    waiting = {"message": {"content": "still here"}}
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        assert kit.call("POST", "/api/package/async", waiting).status == 202
        assert kit.stop() == 0
    command = [*MODULE, "run", "--config", str(tmp_path / "agent.properties")]
    if hindrance is unreadable:
        strace = shutil.which("strace")
        if strace is None:
            pytest.skip("needs strace")
        path = str(state / "journal.sqlite3")
        command = [
            strace,
            "-f",
            "-qq",
            "-P",
            path,
            "-e",
            "inject=pread64:error=EIO:when=1+",
            *command,
        ]
    with hindrance(state):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert words.lower() in done.stderr.lower(), done.stderr
        assert "Traceback" not in done.stderr
        assert done.returncode == code
        assert not list(state.glob("*.bad"))
    with sky(tmp_path), agent(tmp_path) as kit:
        kit.call("POST", "/api/package", waiting | {"id": 1})
        assert kit.call("GET", "/api/package/1").body["status"] == "Delivered"
        assert not list(state.glob("*.bad"))
