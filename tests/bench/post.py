"""Measures Packages that the agent accepts, alternately with other possible implementations.
Without a disk, a server looks many times faster, so there are rows with and without syncs.

Run it as `python -m tests.bench.post`. uvicorn reads and checks each Package by the agent's own
rules (`uvicorn_app`). Figures are medians over the rounds, and ratios are from one round. Trust the
CPU figures, because the time of a disk varies. Therefore programs that commit each Package are
measured with a simulated disk, whose syncs take a usual time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.request import urlopen

from tests import disk as disks
from tests.bench.drive import CONNECTIONS, Cost, cost
from tests.bench.table import row, show
from tests.bench.uvicorn_app import STORE
from tests.processes import MODULE, Agent, Running, agent, free_port

REQUESTS = 3_000
ROUNDS = 7
ROW = 200
"""Approximate bytes of a Package in the journal, for programs that store nothing else."""
REQUEST = (
    b"POST /api/package/async HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: bench\r\n"
    b"Accept: */*\r\nContent-Type: application/json\r\nContent-Length: 38\r\n\r\n"
    b'{"message":{"content":"A small one."}}'
)
SYNCS = 400
"""Syncs per second of the simulated disk."""
MEMORY = Path("/dev/shm")
UVICORN = [sys.executable, "-m", "uvicorn", "--loop", "asyncio", "--no-access-log", "--port", "0"]

Turn = Callable[[], Cost]
OURS, IN_MEMORY, SLOW = "agent", "agent, no disk", f"agent, {SYNCS} syncs a second"
H11, HTTPTOOLS = "uvicorn, h11", "uvicorn, httptools"
COMMITTING = f"uvicorn, a commit each, {SYNCS} syncs a second"
BARE, REDIS = f"{CONNECTIONS} rows at a time and fdatasync", "Redis, AOF always"


class Post(NamedTuple):
    rounds: list[dict[str, Cost]]
    """Costs by program."""
    commits: float
    """Commits of the agent per accepted Package."""


def measure(rounds: int = ROUNDS) -> Post:
    with ExitStack() as stack:
        disk, memory = (
            Path(stack.enter_context(tempfile.TemporaryDirectory(dir=place)))
            for place in (None, MEMORY)
        )
        ours = stack.enter_context(agent(disk))
        slow = disks.slow(disks.build(disk), memory, 1 / SYNCS)
        (home := memory / "slow").mkdir()
        turns: dict[str, Turn] = {
            OURS: _posts(ours, ours.port),
            IN_MEMORY: _posts(kit := stack.enter_context(agent(memory)), kit.port),
            SLOW: _posts(kit := stack.enter_context(agent(home, {}, MODULE, **slow)), kit.port),
            BARE: lambda: _bare(disk / "rows"),
        }
        for what, http, app, environment in (
            (H11, "h11", "answering", {}),
            (HTTPTOOLS, "httptools", "answering", {}),
            (COMMITTING, "h11", "committing", {STORE: str(memory / "each.sqlite3"), **slow}),
        ):
            turns[what] = _posts(*stack.enter_context(_uvicorn(app, http, environment)))
        if (redis := shutil.which("redis-check-rdb")) is not None:
            turns[REDIS] = stack.enter_context(_redis(disk, redis))
        before = _commits(ours)
        taken = [{what: turn() for what, turn in turns.items()} for _ in range(rounds + 1)]
        spent = _commits(ours) - before
    # The first round is a warm-up.
    return Post(taken[1:], spent / ((rounds + 1) * REQUESTS))


def _posts(server: Running, port: int) -> Turn:
    def turn() -> Cost:
        request, pid = REQUEST % port, server.process.pid
        return cost(port, pid, request, REQUESTS, status=b"HTTP/1.1 202", end=b"}\n")

    return turn


def _commits(kit: Agent) -> int:
    with urlopen(f"http://127.0.0.1:{kit.port}/api/status") as answer:
        return int(json.load(answer)["journal"]["commits"])


@contextmanager
def _uvicorn(app: str, http: str, environment: dict[str, str]) -> Iterator[tuple[Running, int]]:
    command = [*UVICORN, f"tests.bench.uvicorn_app:{app}", "--http", http]
    with Running(command, "http://127.0.0.1:", **environment) as running:
        match = re.search(r"http://127\.0\.0\.1:(\d+)", running.ready)
        assert match is not None
        yield running, int(match[1])


def _bare(path: Path) -> Cost:
    """Measure the speed of this disk for any program that answers after a write."""
    began, spent = time.perf_counter(), time.process_time()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(REQUESTS // CONNECTIONS):
        for _ in range(CONNECTIONS):
            os.write(file, bytes(ROW))
        os.fdatasync(file)
    os.close(file)
    took, used = time.perf_counter() - began, time.process_time() - spent
    return Cost(REQUESTS / took, used / REQUESTS)


@contextmanager
def _redis(folder: Path, program: str) -> Iterator[Turn]:
    """Debian's `redis-tools` contain the server too, under this name, and do not start it."""
    server = folder / "redis-server"
    server.symlink_to(program)
    port = free_port()
    options = {"port": port, "bind": "127.0.0.1", "dir": folder, "save": ""}
    durable = {"appendonly": "yes", "appendfsync": "always"}
    command = [str(server)]
    for name, value in (options | durable).items():
        command += [f"--{name}", str(value)]
    push = b"*3\r\n$5\r\nRPUSH\r\n$4\r\nrows\r\n$%d\r\n%b\r\n" % (ROW, b"x" * ROW)
    with Running(command, "Ready to accept connections") as running:
        pid = running.process.pid
        yield lambda: cost(port, pid, push, REQUESTS, status=b":", end=b"\r\n")


def main() -> None:
    rounds, commits = measure()

    def speed(what: str, other: str) -> float:
        return median(each[what].speed / each[other].speed for each in rounds)

    row("POST, no disk, speed over uvicorn with h11", speed(IN_MEMORY, H11))
    row("  of uvicorn with httptools", speed(HTTPTOOLS, H11))
    cheaper = median(each[H11].processor / each[OURS].processor for each in rounds)
    row("durable POST, CPU of uvicorn with h11 without a disk over ours", cheaper, ">= 0.7")
    row(
        "  CPU of the agent for each",
        1e6 * median(each[OURS].processor for each in rounds),
        "",
        "us",
    )
    row(f"  its speed over: {COMMITTING}", speed(SLOW, COMMITTING), ">= 4")
    for other in (H11, BARE, REDIS):
        if other in rounds[0]:
            row(f"  its speed over: {other}", speed(OURS, other))
        else:
            show(f"  its speed over: {other}: not measured, apt-get install redis-tools")
    row(f"commits per accepted Package, {CONNECTIONS} connections", commits, "<= 0.125")


if __name__ == "__main__":
    main()
