"""A hub reports a truncated or removed database instead of starting silently without its kits."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldagent.system.exit_codes import IO_FAILED
from tests.processes import MODULE, PATIENCE, administer, hub

LOG = "hub.sqlite3-wal"


@pytest.fixture(
    params=[pytest.param("stopped", marks=pytest.mark.full), "killed", "used by a command"]
)
def database(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Yield the file of a hub that has ended."""
    file = tmp_path / "hub.sqlite3"
    administer(str(file), "init", "Alps")
    if request.param != "used by a command":
        with hub(tmp_path, {"database": str(file)}) as running:
            (running.stop if request.param == "stopped" else running.kill)()
        assert (tmp_path / LOG).exists()
    yield file


def run_hub_command(database: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MODULE, "hub", *words, "--database", str(database)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize("size", [None, 0, 1])
def test_lost_database_is_reported_and_no_file_is_changed(database: Path, size: int | None) -> None:
    if size is None:
        database.unlink()
    else:
        os.truncate(database, size)
    if not database.with_name(LOG).exists() and size != 1:
        # Nothing shows that there was a hub. The command names the file, so that people notice.
        done = run_hub_command(database, "user", "list")
        assert done.returncode != 0 and str(database) in done.stderr
        return
    left = {each: each.read_bytes() for each in database.parent.iterdir()}
    for words in ("run",), ("user", "list"):
        done = run_hub_command(database, *words)
        assert done.returncode == IO_FAILED, done.stderr
        assert str(database) in done.stderr and "backup" in done.stderr
        assert "Traceback" not in done.stderr
    assert {each: each.read_bytes() for each in database.parent.iterdir()} == left


def test_reported_steps_for_a_new_database_work(database: Path) -> None:
    database.unlink()
    said = run_hub_command(database, "workspace", "list").stderr
    for each in database.parent.glob(f"{database.name}-*"):
        assert str(each) in said
        each.unlink()
    assert run_hub_command(database, "init", "Alps").returncode == 0


def test_empty_file_becomes_a_new_hub_with_a_notice(tmp_path: Path) -> None:
    """An operator who mounts one file into a container creates it first."""
    file = tmp_path / "hub.sqlite3"
    file.touch()
    first, second = (
        run_hub_command(file, "init", "Alps"),
        run_hub_command(file, "user", "list", "--workspace=1"),
    )
    assert (first.returncode, second.returncode) == (0, 0)
    assert "is empty: a new hub starts in it" in first.stderr
    assert "a new hub" not in second.stderr
    file.unlink()
    assert "a new hub" not in run_hub_command(file, "init", "Alps").stderr
