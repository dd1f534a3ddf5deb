"""Tests of the guard itself."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import trio

from fieldagent.hub.webhook import reach
from tests import offline
from tests.started.loopback import PastLoopback

BEYOND = ["192.0.2.1", "192.0.0.1", "8.8.8.8", "::ffff:9.9.9.9", "2001:db8::1"]


@pytest.mark.parametrize("address", BEYOND)
async def test_connection_beyond_this_machine_is_blocked(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard stops every way of the standard library and trio, even if the hub takes the address
    for public.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as datagrams:
        with pytest.raises(PastLoopback):
            datagrams.sendto(b"x", (address, 9))
        with pytest.raises(PastLoopback):
            datagrams.connect((address, 9))
    with pytest.raises(PastLoopback):
        socket.getaddrinfo("example.org", 80)
    monkeypatch.setattr(reach, "is_public", lambda address, allowed=(): True)
    with pytest.raises((PastLoopback, BaseExceptionGroup)) as left:
        await reach.open_public()(address, 80)
    assert "leave this machine" in repr(left.value)


async def test_connection_within_this_machine_is_allowed() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
        await (await trio.open_tcp_stream("localhost", port)).aclose()


STARTS = """
from tests.processes import agent

def test_a_kit_that_calls_a_hub_elsewhere(tmp_path):
    settings = {{"hub-address": "https://{host}", "hub-token": "0" * 64}}
    with agent(tmp_path, {{**settings, "satellite-port": None}}) as running:
        running.process.wait(60)

def test_that_goes_on():
    pass
"""


@pytest.mark.full
@pytest.mark.parametrize("host", ["192.0.2.1", "hub.example.org"])
def test_network_guard_also_blocks_child_processes(host: str, tmp_path: Path) -> None:
    """The guard stops an address, and a name that needs an external name server. The started test
    fails.
    """
    (tmp_path / "test_starts.py").write_text(STARTS.format(host=host))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", tmp_path / "test_starts.py"],
        cwd=offline.STARTED.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout
    assert re.search(
        rf"a test would leave this machine: .*{host}.* by .*fieldagent run", done.stdout
    )
    assert "2 passed, 1 error" in done.stdout


@pytest.mark.parametrize("how", ["-c", "-m"])
def test_any_started_python_is_blocked(how: str, tmp_path: Path) -> None:
    program = "import socket; socket.create_connection(('192.0.2.1', 9))"
    (tmp_path / "calls.py").write_text(program)
    words = [how, program if how == "-c" else "calls"]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True)
    assert "PastLoopback: a test would leave this machine" in done.stderr
    assert "192.0.2.1" in offline.left()


def test_every_custom_pythonpath_includes_the_guard() -> None:
    for path in Path(__file__).parent.rglob("*.py"):
        for line in path.read_text().splitlines():
            if '"PYTHONPATH":' in line and path != Path(__file__):
                assert "offline.path(" in line, f"{path}: {line}"
