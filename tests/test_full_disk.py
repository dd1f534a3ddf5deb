"""A real agent on a disk that others have filled."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import lacking
from tests.processes import MODULE, Agent, sky

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """16 MiB."""
    if os.geteuid() != 0:
        lacking("only root may mount a disk that is small enough to be filled")
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def fill(disk: Path, leave: int = 0) -> Path:
    """Others leave so many bytes free."""
    statistics = os.statvfs(disk)
    room = statistics.f_bavail * statistics.f_frsize - leave
    logs = disk / "logs"
    with logs.open("ab") as file:
        os.posix_fallocate(file.fileno(), file.tell(), room)
    return logs


def agent_on(disk: Path, home: Path) -> Agent:
    hook = f"cat >>{home}/came && echo handed"
    return Agent(home, {"state-directory": str(disk / "state"), "inbound-hook": hook})


def test_the_last_room_is_kept_for_an_sos(disk: Path, tmp_path: Path) -> None:
    with sky(tmp_path):
        agent = agent_on(disk, tmp_path)
        logs = fill(disk, leave=MIB)
        refused = agent.post("ordinary")
        assert refused.status == 507
        assert "kept for an SOS; free some space" in refused.body["detail"]
        assert agent.post("help", priority=100).body["status"] == "Delivered"
        logs.unlink()
        assert agent.post("ordinary").body["status"] == "Delivered"
        assert agent.stop() == 0


def test_what_comes_waits_above_until_there_is_room(disk: Path, tmp_path: Path) -> None:
    with sky(tmp_path) as above:
        agent = agent_on(disk, tmp_path)
        assert agent.post("before").body["status"] == "Delivered"
        logs = fill(disk)
        above.type("mt hello")
        agent.expect("the disk is full: make room on it")
        assert agent.post("help", priority=100).status == 507
        shown = subprocess.run(
            [*MODULE, "status", "--port", str(agent.port)], capture_output=True, text=True
        )
        assert "the disk is full" in shown.stdout
        logs.unlink()
        agent.expect("there is room on the disk again")
        agent.expect("handed")
        assert "hello" in (tmp_path / "came").read_text()
        assert agent.post("after").body["status"] == "Delivered"
        assert agent.stop() == 0


def test_it_stops_in_order_though_the_disk_is_full(disk: Path, tmp_path: Path) -> None:
    with sky(tmp_path) as above:
        agent = agent_on(disk, tmp_path)
        logs = fill(disk)
        above.type("mt hello")
        agent.expect("the disk is full: make room on it")
        assert agent.stop() == 0
        assert not any("Traceback" in line for line in agent.lines)
        logs.unlink()
        agent = agent_on(disk, tmp_path)
        agent.expect("handed")
        assert agent.stop() == 0
