"""A forked program behaves like a started one: the same arguments, codes, signals and folder."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fieldagent.system.exit_codes import SETTINGS
from tests.fork_server import COLD, MODULE, Forked, Server
from tests.processes import PATIENCE, Agent

COMMANDS = [
    ["--version"],
    ["--help"],
    ["nonsense"],
    ["queue", "--port", "1"],
    ["run", "--config", "nowhere/agent.properties"],
    ["hub", "run", "--config", "nowhere/hub.properties"],
    ["simulate", "satellite", "--kind", "none"],
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", "HOME": str(tmp_path)}


def ended(process: subprocess.Popen[str]) -> tuple[str, str, int]:
    with process:
        try:
            out, complaint = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    return out, complaint, process.returncode


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_forked_program_has_the_same_output_and_exit_code(
    words: list[str], server: Server, environment: Mapping[str, str], tmp_path: Path
) -> None:
    command = [*MODULE, *words]
    both: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both |= {"stdin": subprocess.DEVNULL, "cwd": tmp_path, "env": environment}
    started = ended(subprocess.Popen(command, **both))  # type: ignore[call-overload]
    assert ended(Forked(server, command, **both)) == started
    assert started[0] or started[1]


def test_forked_program_runs_in_the_requested_folder(
    server: Server, environment: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "agent.properties").write_text("api-port=no number\n")
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = [*MODULE, "run", "--config", "agent.properties"]
    out, _, code = ended(Forked(server, command, cwd=tmp_path, env=environment, text=True, **pipes))
    assert "api-port" in out
    assert code == SETTINGS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGHUP])
def test_forked_program_has_the_same_command_line_and_signal_exit(
    number: signal.Signals, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    codes = []
    for home, command in ((tmp_path / "a", MODULE), (tmp_path / "b", COLD)):
        home.mkdir()
        with Agent(home, command=command) as running:
            forked = isinstance(running.process, Forked)
            assert forked is (command is MODULE and not request.config.getoption("--cold"))
            words = Path(f"/proc/{running.process.pid}/cmdline").read_text().rstrip("\0")
            assert words.split("\0")[:4] == [*MODULE, "run"]
            running.process.send_signal(number)
            codes.append(running.wait())
    assert codes[0] == codes[1]


@pytest.mark.parametrize("name", ["PYTHONPATH", "LD_PRELOAD", "LANG", "TZ"])
def test_program_with_startup_variables_is_not_forked(
    name: str, server: Server, environment: Mapping[str, str]
) -> None:
    command = [*MODULE, "run"]
    assert server.starts(command, {**environment, "HOME": "/nowhere"})
    assert not server.starts(command, {**environment, name: "/nowhere"})
    assert not server.starts([*COLD, "run"], environment)
