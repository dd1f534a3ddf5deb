"""What a whole agent costs: memory when idle, and time until it listens."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.processes import agent

ROUNDS = 7

_BARE = """
import h11, trio
async def answer(stream):
    connection = h11.Connection(h11.SERVER)
    async with stream:
        while True:
            connection.receive_data(await stream.receive_some(65536))
            while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if type(event) is h11.EndOfMessage:
                    head = h11.Response(status_code=200, headers=[("Content-Length", "0")])
                    answer = connection.send(head) + connection.send(h11.EndOfMessage())
                    await stream.send_all(answer)
                    connection.start_next_cycle()
                if type(event) is h11.ConnectionClosed:
                    return
async def main():
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print("http://127.0.0.1:%d" % listeners[0].socket.getsockname()[1], flush=True)
    await trio.serve_listeners(answer, listeners)
trio.run(main)
"""


def resident(pid: int) -> int:
    """Bytes of memory of its own and shared, as /proc tells."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * 4096


def processor(pid: int) -> float:
    """Seconds that it has computed, as /proc tells (proc_pid_stat(5))."""
    of_user, of_system = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:13]
    return (int(of_user) + int(of_system)) / os.sysconf("SC_CLK_TCK")


def memory_ratio() -> float:
    """Idle agent with a modem that is absent, over a bare trio and h11 server."""
    with tempfile.TemporaryDirectory() as home, agent(Path(home)) as kit:
        for _ in range(20):
            kit.call("GET", "/api/status")
        own = resident(kit.process.pid)
    process = subprocess.Popen([sys.executable, "-c", _BARE], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        bare = resident(process.pid)
        process.terminate()
    return own / bare


def start_ratio() -> float:
    """Start until the API listens, over starting Python and importing trio."""
    ratios = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as home, agent(Path(home)):
            until_listening = time.perf_counter() - began
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import trio"], check=True)
        ratios.append(until_listening / (time.perf_counter() - began))
    return statistics.median(ratios)


def zipapp_ratio(zipapp: Path) -> float:
    """Start of the zipapp over that of the installed package, both up to the agent's imports."""
    ratios = []
    code = "import fieldagent.agent.agent"
    for _ in range(ROUNDS):
        began = time.perf_counter()
        ahead = f"{zipapp}/{sys.implementation.cache_tag}"
        source = f"import sys; sys.path[:0] = [{ahead!r}, {str(zipapp)!r}]; {code}"
        subprocess.run([sys.executable, "-I", "-S", "-c", source], check=True)
        packed = time.perf_counter() - began
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        ratios.append(packed / (time.perf_counter() - began))
    return statistics.median(ratios)
