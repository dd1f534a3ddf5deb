"""The signs of life of a real agent to systemd: they last as long as the disk accepts writes."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.watchdog import feed_watchdog
from tests.agent.journal.test_full_disk import disk
from tests.breaking import environment
from tests.machine import fill, mounted
from tests.processes import MODULE, Agent, agent, until

__all__ = ["disk"]
INTERVAL = 6.0
HANGS = "the disk has not completed a write for"


class Systemd:
    """The manager's end of sd_notify(3)."""

    def __init__(self, home: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(home / "notify"))
        self._socket.setblocking(False)
        self.environment = {
            "NOTIFY_SOCKET": str(home / "notify"),
            "WATCHDOG_USEC": str(int(INTERVAL * 1e6)),
        }

    def read_messages(self) -> list[bytes]:
        """Return the messages since the last call."""
        heard = []
        while True:
            try:
                heard.append(self._socket.recv(4096))
            except BlockingIOError:
                return heard

    def count_signs_of_life(self) -> int:
        """Return the number of signs of life since the last call."""
        return self.read_messages().count(b"WATCHDOG=1")


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    running = Systemd(tmp_path)
    yield running
    running._socket.close()


@contextmanager
def file_system(home: Path) -> Iterator[Path]:
    """Yield a separate file system that can be frozen."""
    image = home / "image"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    with mounted(home / "mounted", "-o", "loop", image) as place:
        yield place


def state(place: Path) -> dict[str, str | None]:
    return {"satellite-port": None, "state-directory": str(place / "state")}


def test_hanging_write_is_logged_and_stops_signs_of_life(tmp_path: Path, systemd: Systemd) -> None:
    with (
        file_system(tmp_path) as place,
        agent(tmp_path, state(place), MODULE, **systemd.environment) as kit,
    ):
        until(systemd.count_signs_of_life)
        with ThreadPoolExecutor() as somebody, frozen_disk(place):
            body = {"message": {"content": "written before it is answered"}}
            answer = somebody.submit(kit.call, "POST", "/api/package/async", body)
            check_hang_is_logged(systemd, kit)
        assert answer.result().status == 202
        until(systemd.count_signs_of_life)
        assert kit.stop() == 0


@pytest.mark.full
def test_hanging_disk_is_logged_while_nothing_is_written(tmp_path: Path, systemd: Systemd) -> None:
    with (
        file_system(tmp_path) as place,
        agent(tmp_path, state(place), MODULE, **systemd.environment) as kit,
    ):
        # By now, the writes after the agent's start are complete.
        for _ in range(5):
            until(systemd.count_signs_of_life)
        with frozen_disk(place):
            check_hang_is_logged(systemd, kit)


@contextmanager
def frozen_disk(place: Path) -> Iterator[None]:
    subprocess.run(["fsfreeze", "-f", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", place], check=True)


def check_hang_is_logged(systemd: Systemd, kit: Agent) -> None:
    """Check that the log names the hanging part, and that systemd gets no sign of life
    afterwards.
    """

    def told() -> bool:
        # The agent would wait for a manager that does not read.
        systemd.read_messages()
        return HANGS in "\n".join(kit.output())

    until(told)
    systemd.count_signs_of_life()
    kit.expect(HANGS)
    assert systemd.count_signs_of_life() == 0


def test_full_disk_does_not_stop_signs_of_life(
    disk: Path, tmp_path: Path, systemd: Systemd
) -> None:
    often = {**systemd.environment, "WATCHDOG_USEC": "600000"}
    with agent(tmp_path, state(disk), MODULE, **often) as kit:
        until(systemd.count_signs_of_life)
        fill(disk)
        # The disk is tested at one of fifteen signs.
        for _ in range(20):
            until(systemd.count_signs_of_life)
        assert kit.post("ordinary").status == 507
        assert kit.stop() == 0


async def test_idle_agent_tests_disk_every_21_minutes(
    tmp_path: Path, clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interval follows from the unit's WatchdogSec. Each test of the disk wears the card."""
    monkeypatch.setenv("WATCHDOG_USEC", "180000000")
    clock.autojump_threshold = 0
    journal = Journal(tmp_path / "journal.sqlite3")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        nursery.start_soon(feed_watchdog, journal, lambda: None, lambda: "", lambda: None)
        await trio.sleep(20 * 21 * 60 - 1)
        nursery.cancel_scope.cancel()
    journal.close()
    assert journal.commits == 20


def test_blocked_agent_logs_stack_of_blocking_call(tmp_path: Path, systemd: Systemd) -> None:
    """A call blocks the whole program, as a program error would."""
    soon = environment(tmp_path)
    # The hang is code, which no value of `Put` can express.
    (tmp_path / "breaking" / "sitecustomize.py").write_text(
        "import time, trio\n"
        "import fieldagent.agent.agent as agent\n"
        "async def hangs(_):\n"
        "    await trio.sleep(3)\n"
        "    time.sleep(600)\n"
        "agent.BACKGROUND_TASKS['the event stream'] = hangs\n"
    )
    with Agent(tmp_path, state(tmp_path), MODULE, **systemd.environment, **soon) as kit:
        kit.expect("Timeout")
        kit.expect("sitecustomize.py")


def test_systemd_status_line_shows_sos_and_links(tmp_path: Path, systemd: Systemd) -> None:
    nobody = {"satellite-port": str(tmp_path / "nobody")}
    with agent(tmp_path, nobody, MODULE, **systemd.environment) as kit:
        until(
            lambda: any(each.startswith(b"STATUS=Satellite ") for each in systemd.read_messages())
        )
        sos = {"message": {"content": "help"}, "priority": 100}
        assert kit.call("POST", "/api/package/async", sos).status == 202
        heard: list[bytes] = []

        def told() -> list[bytes]:
            heard.extend(systemd.read_messages())
            return [each for each in heard if b"SOS" in each]

        until(told)
        line = told()[0].decode()
        assert re.match("STATUS=SOS [0-9]{3} raised; Satellite ", line)
        assert line.endswith("; 1 to send")
        assert "nobody cannot be opened" in line
