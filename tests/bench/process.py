"""Measures a whole agent: idle memory, idle work, and its start. An agent with satellite alone
needs the least memory and work, so some rows measure an agent with all channels.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.bench.size import build
from tests.bench.table import row
from tests.processes import MODULE, ZIPAPP, Agent, Hub, Running, administer, agent, hub, sky, until

KIT_ZIPAPP = ZIPAPP.with_name("fieldagent-kit.pyz")
ROUNDS = 7
REST = 60.0
"""Seconds of the measurement of an idle agent."""

_PEER = """
import cbor2, h11, json, sqlite3, trio
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
    """Return the resident memory of a process in bytes, from /proc."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * 4096


def processor(pid: int) -> float:
    """Return the processor seconds of a process, from /proc (proc_pid_stat(5))."""
    of_user, of_system = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:13]
    return (int(of_user) + int(of_system)) / os.sysconf("SC_CLK_TCK")


def family_processor(pid: int) -> float:
    """Return the processor seconds of a process and its children, including ended children, from
    /proc.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:15]
    own = sum(map(int, fields)) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(processor(int(child)) for child in children)


class Doings(NamedTuple):
    """Work of a process since its start."""

    wakeups: int
    """Number of waits of all its threads."""
    written: int
    """Bytes written to a disk."""


def doings(pid: int) -> Doings:
    """Return the work from /proc (proc_pid_status(5), proc_pid_io(5))."""
    waited = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        lines = (thread / "status").read_text().splitlines()
        (switches,) = (line for line in lines if line.startswith("voluntary_ctxt_switches"))
        waited += int(switches.split()[1])
    io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return Doings(waited, int(io["write_bytes"]))


class AtRest(NamedTuple):
    wakeups: float
    """Wakeups per second."""
    written: float
    """Written bytes per hour."""


def at_rest(*pids: int) -> list[AtRest]:
    """Measure idle processes at the same time, after a minute of rest."""
    time.sleep(REST)
    began, before = time.monotonic(), [doings(pid) for pid in pids]
    time.sleep(REST)
    took, after = time.monotonic() - began, [doings(pid) for pid in pids]
    return [
        AtRest((now.wakeups - then.wakeups) / took, (now.written - then.written) / took * 3600)
        for then, now in zip(before, after, strict=True)
    ]


def memory(kit: Agent) -> int:
    """Return the resident memory of an agent in bytes, after it has answered some requests."""
    for _ in range(20):
        kit.call("GET", "/api/status")
    return resident(kit.process.pid)


def peer_memory() -> int:
    """Return the memory of a bare HTTP server that has loaded the libraries of an agent."""
    with Running([sys.executable, "-c", _PEER], "http://127.0.0.1:") as peer:
        return resident(peer.process.pid)


@contextmanager
def satellite_only() -> Iterator[Agent]:
    """Yield an agent with a modem, from the program that a kit installs."""
    command = [sys.executable, str(KIT_ZIPAPP)]
    with (
        tempfile.TemporaryDirectory() as name,
        sky(home := Path(name)),
        agent(home, command=command) as kit,
    ):
        kit.expect("answers on")
        yield kit


@contextmanager
def radio_node(home: Path) -> Iterator[dict[str, str]]:
    """Yield the settings of a kit with a simulated node."""
    folder = home / "air"
    with Running([*MODULE, "simulate", "node", "--link", str(folder)], "type `help`"):
        yield {"radio-port": str(folder / "node-1"), "radio-station": "1"}


def until_at_work(kit: Agent) -> None:
    """Wait until each channel works: an agent that still searches for a modem does other work and
    uses less memory.
    """

    def are_ready() -> bool:
        channels = kit.call("GET", "/api/status").body["channels"]
        return all(each["state"] in (None, "ready") for each in channels.values())

    until(are_ready)


@contextmanager
def all_channels() -> Iterator[tuple[Agent, Hub]]:
    """Yield an agent with a modem, a radio node and a link to a hub on SQLite, and that hub."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = str(home / "hub.sqlite3")
        administer(database, "init", "Bench")
        member = str(administer(database, "user", "add", "kit")["id"])
        token = administer(database, "device", "add", "kit", "--user", member)["hub-token"]
        above = stack.enter_context(hub(home, {"database": database}))
        stack.enter_context(sky(home))
        radio = stack.enter_context(radio_node(home))
        settings = {**radio, "hub-address": above.address, "hub-token": token}
        kit = stack.enter_context(agent(home, settings))
        until_at_work(kit)
        yield kit, above


def start_ratio(command: list[str]) -> float:
    """Return the agent's processor time until its API listens, as a ratio to a start of Python with
    trio.
    """
    ratios = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as home, agent(Path(home), command=command) as kit:
            until_listening = processor(kit.process.pid)
        before = os.times()
        subprocess.run([sys.executable, "-c", "import trio"], check=True)
        after = os.times()
        imported = sum(after[2:4]) - sum(before[2:4])
        ratios.append(until_listening / imported)
    return statistics.median(ratios)


def zipapp_ratio(zipapp: Path) -> float:
    """Return the start of the zipapp as a ratio to the installed package, both up to the agent's
    imports, with the flags of the zipapp's first line.
    """
    ratios = []
    ahead = [f"{zipapp}/{sys.implementation.cache_tag}", str(zipapp)]
    installed = [str(Path(__file__).parents[2]), sysconfig.get_path("purelib")]
    for _ in range(ROUNDS):
        packed, plain = (_imports(paths) for paths in (ahead, installed))
        ratios.append(packed / plain)
    return statistics.median(ratios)


def _imports(paths: list[str]) -> float:
    """Return the seconds of a start of Python that imports the agent's modules from `paths`."""
    modules = "fieldagent.agent.agent, fieldagent.agent.channels.satellite"
    source = f"import sys; sys.path[:0] = {paths!r}; import {modules}"
    began = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-S", "-c", source], check=True)
    return time.perf_counter() - began


def main() -> None:
    build("--kit")
    peer = peer_memory()
    with satellite_only() as kit, all_channels() as (with_all, above):
        alone, linked = memory(kit), memory(with_all)
        idle, hub_on_sqlite = at_rest(kit.process.pid, above.process.pid)
    row("idle memory over that of its libraries, satellite only", alone / peer, "<= 1.3")
    row("  with all channels, from source", linked / peer, "<= 1.33")
    row("wakeups of an idle agent", idle.wakeups, "<= 0.1", "/s")
    row("  it writes", idle.written, "<= 0", "B/h")
    row("wakeups of a hub on SQLite with one link", hub_on_sqlite.wakeups, "<= 0.2", "/s")
    row("  it writes", hub_on_sqlite.written, "<= 0", "B/h")
    row("CPU of the start to listening over import trio", start_ratio(MODULE), "<= 1.5")
    build()
    packed = start_ratio([sys.executable, str(ZIPAPP)])
    row("  of the zipapp", packed, "<= 1.55")
    row("start of the zipapp over the installed package", zipapp_ratio(ZIPAPP), "<= 1.3")


if __name__ == "__main__":
    main()
