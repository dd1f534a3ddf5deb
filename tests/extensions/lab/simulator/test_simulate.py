"""The commands of `fieldagent simulate`, and the names of its ports."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path

import pytest
import trio

from fieldagent.extensions.lab.simulate import build, build_imt
from fieldagent.extensions.lab.simulate_gsm import GsmPort
from fieldagent.extensions.lab.simulate_gsm import run_command as obey_gsm
from fieldagent.extensions.lab.simulator.commands import BadCommand, run_line
from fieldagent.extensions.lab.simulator.imt_commands import run_line as obey_imt
from fieldagent.extensions.lab.simulator.pty_port import NoLine, open_pty
from tests.processes import MODULE, PATIENCE, Running, free_port

IMEI = "300234010000001"


@pytest.mark.parametrize("line", ["mt ", "mt-sos ", "mt-waypoint 47 8 "])
def test_message_of_too_many_fragments_is_refused(tmp_path: Path, line: str) -> None:
    bench = build(tmp_path / "modem", IMEI, 0.0)
    with pytest.raises(BadCommand, match=r"nothing was sent: .* need more than 255 fragments"):
        run_line(bench, line + "x" * 100_000)
    assert len(bench.queue) == 0
    run_line(bench, "mt hello")
    assert len(bench.queue) == 1


@pytest.mark.parametrize("digits", [10, 5_000])
def test_out_of_range_number_is_refused_in_every_simulator(tmp_path: Path, digits: int) -> None:
    number = "9" * digits
    satellite, imt = build(tmp_path / "a", IMEI, 0.0), build_imt(tmp_path / "b", IMEI, 0.0)
    gsm = GsmPort(tmp_path / "c")
    for line in (f"status {number}", f"signal {number}", f"latency {number}", f"baud {number}"):
        with pytest.raises(BadCommand, match="is a number from"):
            run_line(satellite, line)
    with pytest.raises(BadCommand, match="is a number from"):
        obey_imt(imt, f"latency {number}")
    for line in (f"later {number}", f"refuse {number}"):
        with pytest.raises(BadCommand, match="is a number from"):
            obey_gsm(gsm, line)


async def test_existing_file_at_the_link_path_is_kept(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    diary.write_text("dear diary")
    for taken in (diary, tmp_path):
        with pytest.raises(NoLine, match=r"file exists.*choose another"):
            async with open_pty(taken):
                pass
    assert diary.read_text() == "dear diary"


async def test_link_path_belongs_to_the_last_simulator(tmp_path: Path) -> None:
    """A killed simulator leaves its link. A running one loses the link to the next and does not
    remove it.
    """
    name = tmp_path / "modem"
    name.symlink_to("/dev/pts/of-one-that-was-killed")
    async with trio.open_nursery() as nursery:
        ends, has_ended = trio.Event(), trio.Event()

        async def first(task_status: trio.TaskStatus[None]) -> None:
            async with open_pty(name):
                task_status.started()
                await ends.wait()
            has_ended.set()

        await nursery.start(first)
        async with open_pty(name):
            ends.set()
            await has_ended.wait()
            assert name.is_char_device()
    assert not name.is_symlink()


def get_simulate_error(*arguments: str) -> str:
    done = subprocess.run(
        [*MODULE, "simulate", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode != 0 and "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("kind", ["satellite", "satellite --kind imt", "gsm", "node"])
def test_unwritable_link_path_is_reported(kind: str) -> None:
    message = get_simulate_error(*kind.split(), "--link", "/proc/none/modem")
    assert message.startswith("fieldagent: /proc/none/modem") and "choose another" in message


def test_occupied_port_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = str(other.getsockname()[1])
        hub = ("--hub", f"127.0.0.1:{free_port()}")
        assert "is in use" in get_simulate_error("satellite", *hub, "--mt-port", taken)
        assert "is in use" in get_simulate_error("node", "--tcp-port", taken)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("what", ["satellite", "satellite --kind imt", "node", "gsm"])
def test_simulator_ends_in_order_after_a_signal_and_removes_its_folder(
    tmp_path: Path, what: str, number: signal.Signals
) -> None:
    command = [*MODULE, "simulate", *what.split()]
    with Running(command, "type `help`", TMPDIR=str(tmp_path)) as running:
        assert [*tmp_path.iterdir()]
        running.process.send_signal(number)
        assert running.wait() == 0
        assert not [*tmp_path.iterdir()]
        assert "Traceback" not in "\n".join(running.output())


@pytest.mark.parametrize("what", ["satellite", "satellite --kind imt", "node", "gsm"])
def test_killed_simulator_with_a_named_link_leaves_no_temporary_folder(
    tmp_path: Path, what: str
) -> None:
    place, temporary = tmp_path / "place", tmp_path / "temporary"
    place.mkdir()
    temporary.mkdir()
    link = place if what == "node" else place / "modem"
    command = [*MODULE, "simulate", *what.split(), "--link", str(link)]
    with Running(command, "type `help`", TMPDIR=str(temporary)) as running:
        running.kill()
    assert [*place.iterdir()] and not [*temporary.iterdir()]
