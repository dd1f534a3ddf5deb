"""`fieldagent track` as a process: a real gpsd fed by gpsfake, and one that misbehaves."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.gps_log import nmea
from tests.postgres import lacking
from tests.processes import MODULE, Agent, Running
from tests.wire.test_gpsd import TPV


@contextmanager
def kit(home: Path) -> Iterator[Agent]:
    """An agent whose modem is away: what is posted waits, the newer replaces the older."""
    running = Agent(home)
    try:
        yield running
    finally:
        running.kill()


@contextmanager
def gpsfake(folder: Path, port: int) -> Iterator[None]:
    """It starts a gpsd, which outlives it unless both are ended."""
    command = ["gpsfake", "-q", "-n", "-1", "-c", "0.01", "-P", str(port), str(folder / "way.nmea")]
    with (folder / "gpsfake.log").open("w") as log:
        fake = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(fake.pid, signal.SIGKILL)
        fake.wait()


@contextmanager
def tracking(gpsd: int, agent: int, *more: str) -> Iterator[Running]:
    command = [*MODULE, "track", "--gpsd", f"127.0.0.1:{gpsd}", "--port", str(agent), *more]
    running = Running(command)
    try:
        yield running
    finally:
        assert running.stop() == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_positions_of_a_real_gpsd_are_posted_by_the_policy(tmp_path: Path) -> None:
    if shutil.which("gpsfake") is None or shutil.which("gpsd") is None:
        lacking("no gpsfake: apt-get install gpsd gpsd-clients")
    # At rest for as long as the tracker may take to find gpsd.
    rest = [(47.0, 8.0, 0.0)] * 600
    drive = [(47.0 + 0.00015 * second, 8.0, 16.7) for second in range(1, 240)]
    (tmp_path / "way.nmea").write_text(nmea([*rest, *drive]))
    port = free_port()
    with kit(tmp_path) as agent, gpsfake(tmp_path, port):
        with tracking(port, agent.port, "--distance", "1000") as track:
            first = track.expect("Package 1")
            assert "47.000000 8.000000" in first
            third = track.expect("Package 3")
            latitude = float(third.split()[1])
            assert latitude == pytest.approx(47.009, abs=0.003)
        (waiting,) = agent.call("GET", "/api/queue").body["packages"]
        assert (waiting["kind"], waiting["collapseKey"]) == ("location", 2947)
        story = agent.call("GET", "/api/package/1").body
        assert (story["status"], story["channels"]["Satellite"]["reason"]) == (
            "Collapsed",
            "replaced by Package 2",
        )


@contextmanager
def scripted(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A gpsd that does to each caller in turn what the test says."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                try:
                    caller, _ = listener.accept()
                except OSError:
                    return
                with caller:
                    caller.recv(100)
                    serve(caller)

        threading.Thread(target=run, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_a_gpsd_that_is_away_is_told_and_waited_for() -> None:
    with tracking(free_port(), 1) as track:
        assert "start it; calling again" in track.expect("cannot be reached")


def test_garbage_and_an_end_are_told_and_what_is_good_is_posted(tmp_path: Path) -> None:
    def serve(caller: socket.socket) -> None:
        caller.sendall(b'$GPGGA\n\xff\xfe\n[]\n{"class":"TPV","mode":1}\n' + b"x" * 40_000 + b"\n")
        caller.sendall(TPV[:50])
        caller.sendall(TPV[50:] + b"\n")

    with kit(tmp_path) as agent, scripted(serve) as port, tracking(port, agent.port) as track:
        track.expect("no JSON")
        track.expect("no fix yet")
        assert "47.000500 8.000000" in track.expect("Package 1")
        track.expect("ended the connection")


def test_an_agent_that_is_away_is_told(tmp_path: Path) -> None:
    with scripted(lambda caller: caller.sendall(TPV + b"\n")) as port, tracking(port, 1) as track:
        track.expect("no agent answers")


def test_a_refused_position_is_told_and_does_not_end_it(tmp_path: Path) -> None:
    stay = threading.Event()

    def serve(caller: socket.socket) -> None:
        caller.sendall(TPV + b"\n")
        stay.wait(20)

    with kit(tmp_path) as agent, scripted(serve) as port:
        with tracking(port, agent.port, "--time-to-live", "-5") as track:
            track.expect("/timeToLive")
            assert track.process.poll() is None
        stay.set()


@pytest.mark.parametrize("place", ["nowhere", ":2947", "host:port"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    running = Running([*MODULE, "track", "--gpsd", place])
    assert running.wait() == 2
    assert "HOST:PORT" in "\n".join(running.lines)
