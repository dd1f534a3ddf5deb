"""`fieldagent track` as a process: with a real gpsd fed by gpsfake, and with a faulty one."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.gps_log import nmea
from tests.machine import tool
from tests.processes import MODULE, PATIENCE, Agent, Running, free_port, sky, until
from tests.scripted_agent import scripted_agent
from tests.wire.test_gpsd import TPV

TRACK = [*MODULE, "track", "--gpsd"]


@contextmanager
def kit(home: Path) -> Iterator[Agent]:
    """Yield an agent without its modem, so that posts wait and newer ones replace older ones."""
    with Agent(home) as running:
        yield running


@contextmanager
def gpsfake(folder: Path, port: int) -> Iterator[None]:
    """Run gpsfake. It starts a gpsd, which outlives it unless both are ended."""
    command = ["gpsfake", "-q", "-n", "-1", "-c", "0.01", "-P", str(port), str(folder / "way.nmea")]
    # Its control socket outlives it too, and the path of a pytest folder may be too long for a
    # socket.
    with TemporaryDirectory() as sockets, (folder / "gpsfake.log").open("w") as log:
        fake = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "TMPDIR": sockets},
        )
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(fake.pid, signal.SIGKILL)
            fake.wait()


@contextmanager
def running_tracker(gpsd: int, agent: int, *more: str) -> Iterator[Running]:
    command = [*TRACK, f"127.0.0.1:{gpsd}", "--port", str(agent), *more]
    with Running(command) as running:
        yield running
        assert running.stop() == 0


@pytest.mark.full
def test_positions_of_a_real_gpsd_are_posted_by_the_policy(tmp_path: Path) -> None:
    tool("gpsfake", "gpsd-clients")
    tool("gpsd", "gpsd")
    # It rests for the time that the tracker may need to find gpsd.
    rest = [(47.0, 8.0, 0.0)] * 600
    drive = [(47.0 + 0.00015 * second, 8.0, 16.7) for second in range(1, 240)]
    (tmp_path / "way.nmea").write_text(nmea([*rest, *drive]))
    port = free_port()
    with kit(tmp_path) as agent, gpsfake(tmp_path, port):
        with running_tracker(port, agent.port, "--distance", "1100") as track:
            first = track.expect("Package 1")
            assert "47.000000 8.000000" in first
            # A minute after the start, which is 1018 m, and 1100 m later.
            for package, latitude in ((2, 47.0092), (3, 47.0191)):
                line = track.expect(f"Package {package}")
                (shown,) = re.findall(r"(\d+\.\d{6}) 8\.0", line)
                assert float(shown) == pytest.approx(latitude, abs=0.001)
        (waiting,) = agent.call("GET", "/api/queue").body["packages"]
        assert (waiting["kind"], waiting["collapseKey"]) == ("location", 2947)
        story = agent.call("GET", "/api/package/1").body
        assert (story["status"], story["channels"]["Satellite"]["reason"]) == (
            "Collapsed",
            "replaced by Package 2",
        )


@contextmanager
def scripted_gpsd(serve: Callable[[socket.socket], None], port: int = 0) -> Iterator[int]:
    """Yield a gpsd that handles each caller in turn as the test wants."""
    with socket.create_server(("127.0.0.1", port)) as listener:

        def run() -> None:
            while True:
                try:
                    caller, _ = listener.accept()
                except OSError:
                    return
                # A receiver may hang up at any time.
                with caller, suppress(OSError):
                    caller.recv(100)
                    serve(caller)

        threading.Thread(target=run, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def tpv(second: int, metres: float = 0.0) -> bytes:
    """Return a report `metres` north of the start at that second, without a speed."""
    time = f"2026-11-20T{10 + second // 3600}:{second // 60 % 60:02d}:{second % 60:02d}.000Z"
    report = {"class": "TPV", "mode": 3, "time": time, "lat": 47 + metres / 111_195, "lon": 8.0}
    return json.dumps(report).encode() + b"\n"


def send_lines(*lines: bytes) -> Callable[[socket.socket], None]:
    """Send these lines, and then nothing until the caller hangs up."""

    def serve(caller: socket.socket) -> None:
        caller.sendall(b"".join(lines))
        caller.recv(1)

    return serve


@pytest.mark.full
def test_unreachable_gpsd_is_reported_once_and_retried() -> None:
    port = free_port()
    with scripted_agent() as agent, running_tracker(port, agent.server_port) as track:
        assert "start it; trying again" in track.expect("cannot be reached")
        with scripted_gpsd(send_lines(TPV + b"\n"), port):
            track.expect("has a fix")
            track.expect("Package 7")
        assert sum("cannot be reached" in line for line in track.output()) == 1


def test_garbage_and_disconnect_are_reported_and_valid_reports_posted(tmp_path: Path) -> None:
    def serve(caller: socket.socket) -> None:
        caller.sendall(b'$GPGGA\n\xff\xfe\n[]\n{"class":"TPV","mode":1}\n' + b"x" * 40_000 + b"\n")
        caller.sendall(b"[" * 10_000 + b"\n")
        caller.sendall(TPV[:50])
        caller.sendall(TPV[50:] + b"\n")

    with (
        kit(tmp_path) as agent,
        scripted_gpsd(serve) as port,
        running_tracker(port, agent.port) as track,
    ):
        track.expect("no JSON: b'$GPGGA'")
        track.expect("no fix yet")
        assert "47.000500 8.000000" in track.expect("Package 1")
        track.expect("ended the connection")
        assert sum("sent an unknown line" in line for line in track.output()) == 1


@pytest.mark.full
def test_newest_position_is_posted_once_the_agent_answers() -> None:
    port, there = free_port(), threading.Event()

    def serve(caller: socket.socket) -> None:
        caller.sendall(b"".join(tpv(second, metres=1) for second in range(900)))
        there.wait(PATIENCE)
        second = 1000
        while caller.send(tpv(second, metres=2)):
            second += 1
            there.clear()
            # A report every moment until the tracker hangs up, as from a receiver.
            there.wait(0.2)

    with scripted_gpsd(serve) as gpsd, running_tracker(gpsd, port) as track:
        assert "start one with `fieldagent run`" in track.expect("no agent answers")
        with scripted_agent(port) as agent:
            there.set()
            posted = agent.expect()["location"]["latitude"]
            assert posted == pytest.approx(47 + 2 / 111_195, abs=1e-7)
            track.expect("Package 7")
        assert sum("no agent answers" in line for line in track.output()) == 1


@pytest.mark.parametrize(
    ("up", "chosen", "posted"),
    [
        (("Cellular", "Satellite"), (), [0, 60, 200]),
        (("Satellite",), (), [0, 200]),
        (("Cellular", "Satellite"), ("--channel", "Satellite"), [0, 200]),
        ((), (), [0, 60, 200]),
    ],
    ids=["cheap", "satellite alone is up", "satellite alone is wanted", "none is up"],
)
def test_positions_are_posted_less_often_if_only_satellite_is_up(
    up: tuple[str, ...], chosen: tuple[str, ...], posted: list[int]
) -> None:
    way = [tpv(0), tpv(60, metres=600), tpv(200, metres=2700)]
    with (
        scripted_agent(up=up) as agent,
        scripted_gpsd(send_lines(*way)) as port,
        running_tracker(port, agent.server_port, *chosen),
    ):
        bodies = [agent.expect() for _ in posted]
    assert [body["location"]["timestamp"][14:19] for body in bodies] == [
        f"{second // 60:02d}:{second % 60:02d}" for second in posted
    ]
    assert agent.posted.empty()


def test_batched_positions_share_one_message(tmp_path: Path) -> None:
    way = [tpv(0), tpv(60, metres=600), tpv(200, metres=2700)]
    with (
        sky(tmp_path) as above,
        kit(tmp_path) as agent,
        scripted_gpsd(send_lines(*way)) as port,
        running_tracker(port, agent.port, "--batch", "3") as track,
    ):
        track.expect("Package 3")
        for latitude, time in (("47.0,", "10:00:00Z"), ("47.0054,", "10:01:00Z")):
            assert time in above.expect(f'"latitude": {latitude}')
        line = above.expect('"latitude": 47.02428,')
        assert '"timestamp": "2026-11-20T10:03:20Z"' in line
        until(lambda: agent.call("GET", "/api/queue").body["queued"] == 0)
        assert agent.call("GET", "/api/status").body["channels"]["Satellite"]["creditsToday"] == 1


def send_endless_reports(caller: socket.socket) -> None:
    """Send a report per second while a client listens."""
    for second in count():
        caller.sendall(tpv(second % 30_000))


def test_chosen_interval_takes_effect_and_survives_a_restart(tmp_path: Path) -> None:
    with kit(tmp_path) as agent, scripted_gpsd(send_endless_reports) as gpsd:
        with running_tracker(
            gpsd, agent.port, "--interval", "600", "--moving-interval", "60"
        ) as track:
            track.expect("Package")
            assert agent.call("GET", "/api/track/cost?interval=1200").status == 200
            assert agent.call("POST", "/api/track/interval", {"interval": 1200}).status == 200
            until(lambda: get_track_status(agent)["interval"] == 1200)
            assert "1200 s at rest" in track.expect("a position each")
            pace = agent.call("GET", "/api/track").body["tracker"]
            assert (pace["movingInterval"], pace["satelliteFactor"]) == (120, 4)
        agent.kill()
    with kit(tmp_path) as agent:
        assert get_track_status(agent) == {
            "chosenInterval": 1200,
            "interval": None,
            "due": None,
            "reportedAt": None,
        }
        result = subprocess.run(
            [*MODULE, "status", "--port", str(agent.port)], capture_output=True, text=True
        )
        assert "track: a position each 20 min at rest, as was chosen on the page" in result.stdout
        for body in ({"interval": 59}, {"interval": 90.5}, {"interval": "90"}, {}, {"every": 90}):
            assert agent.call("POST", "/api/track/interval", body).status == 422
        assert agent.call("DELETE", "/api/track/interval").body == {"chosenInterval": None}
        assert get_track_status(agent)["chosenInterval"] is None


def get_track_status(agent: Agent) -> Any:
    return agent.call("GET", "/api/status").body["track"]


def test_posted_package_contains_the_fix_and_the_options() -> None:
    more = ("--json", "--collapse-key", "-5", "--channel", "Radio", "--time-to-live", "600")
    with (
        scripted_agent() as agent,
        scripted_gpsd(send_lines(TPV + b"\n")) as port,
        running_tracker(port, agent.server_port, *more) as track,
    ):
        body = agent.expect()
        shown: dict[str, Any] = json.loads(track.expect("{"))
    assert body == {
        "location": {
            "latitude": 47.0005,
            "longitude": 8.0,
            "timestamp": "2026-11-20T10:00:10Z",
            "altitude": 545.4,
            "speedOverGround": 15.022,
            "courseOverGround": 84.4,
        },
        "collapseKey": -5,
        "channels": ["Radio"],
        "timeToLive": 600,
    }
    assert shown == {"id": 7, "location": body["location"]}


def test_position_of_a_receiver_after_week_rollover_has_no_timestamp() -> None:
    line = TPV.replace(b"2026-11-20", b"2007-04-06") + b"\n"
    with (
        scripted_agent() as agent,
        scripted_gpsd(send_lines(line)) as port,
        running_tracker(port, agent.server_port),
    ):
        location = agent.expect()["location"]
    assert "timestamp" not in location
    assert location["latitude"] == 47.0005


def test_server_that_is_no_agent_is_reported_and_tracking_continues() -> None:
    with scripted_agent() as agent, scripted_gpsd(send_lines(TPV + b"\n")) as port:
        agent.answers = {"/api/status": {"status": "fine"}}
        with running_tracker(port, agent.server_port) as track:
            assert "set the port with --port" in track.expect("no 'channels'")
            assert track.process.poll() is None


def test_refused_position_is_reported_and_tracking_continues(tmp_path: Path) -> None:
    with (
        kit(tmp_path) as agent,
        scripted_gpsd(send_lines(TPV + b"\n")) as port,
        running_tracker(port, agent.port, "--time-to-live", "-5") as track,
    ):
        track.expect("a position was refused")
        track.expect("/timeToLive")
        assert track.process.poll() is None


def test_tracker_ends_in_order_after_sigint() -> None:
    script = send_lines(TPV.replace(b'"mode":3', b'"mode":1') + b"\n")
    with (
        scripted_gpsd(script) as port,
        Running([*TRACK, f"127.0.0.1:{port}", "--port", "1"]) as running,
    ):
        running.expect("no fix yet")
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 0
        assert not any("Traceback" in line for line in running.lines)


def test_tracker_starts_without_importing_trio() -> None:
    code = (
        "import sys, fieldagent.__main__ as m; "
        " sys.argv = ['fieldagent', 'track', '--gpsd', 'none'];"
        " assert m.main() == 2; assert 'fieldagent.cli.kit.track' in sys.modules;"
        " found = {'trio', 'h11', 'serial', 'cbor2', 'sqlite3'} & sys.modules.keys();"
        " assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("place", ["nowhere", ":2947", "host:port", "host:0", "host:65536"])
def test_invalid_gpsd_address_is_refused(place: str) -> None:
    with Running([*TRACK, place]) as running:
        assert running.wait() == 2
    assert "HOST:PORT" in "\n".join(running.lines)
