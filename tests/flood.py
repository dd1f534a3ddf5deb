"""An anonymous client that repeats one request as fast as possible, and measurements of the server
meanwhile. `python -m tests.flood` runs it as a separate process, so that it takes no time from the
measuring process.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

AT_ONCE = 200
"""Number of requests that are sent before an answer is read."""
SOON = 0.1
"""Seconds within which other callers must get an answer. If the machine itself is late, more are
allowed."""
PAUSE, WORK = 0.05, 0.003
"""Seconds for which the thread that measures the delay of this machine sleeps, and then works."""


def flood(port: int, source: str, secure: bool, pipelined: bool, request: bytes) -> None:
    """Send the request forever."""
    context = ssl._create_unverified_context()
    while True:
        with suppress(OSError):
            plain = socket.create_connection(("127.0.0.1", port), 30, (source, 0))
            with context.wrap_socket(plain) if secure else plain as line:
                if pipelined:
                    _pour(line, request * AT_ONCE)
                else:
                    line.sendall(request)
                    line.recv(1 << 20)


def _pour(line: socket.socket, requests: bytes) -> None:
    """Send the requests repeatedly and read the answers, until the other end closes."""
    line.setblocking(False)
    rest = memoryview(requests)
    while True:
        readable, writable, _ = select.select([line], [line], [])
        with suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if writable:
                rest = rest[line.send(rest) :] or memoryview(requests)
        with suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if readable and not line.recv(1 << 20):
                return


@contextmanager
def flooded(
    port: int, request: bytes, *, source: str, secure: bool, pipelined: bool
) -> Iterator[None]:
    how = [str(port), source, str(int(secure)), str(int(pipelined)), request.hex()]
    command = [sys.executable, "-m", "tests.flood", *how]
    stranger = subprocess.Popen(command, cwd=Path(__file__).parents[1])
    try:
        yield
        assert stranger.poll() is None, "the stranger has given up"
    finally:
        stranger.kill()
        stranger.wait()


class Measured(NamedTuple):
    cores: float
    """Processor cores that the process used."""
    slowest: float
    """Seconds: the 99th percentile of another caller's waiting times, or the 90th if there
    are few."""
    lag: float
    """Largest delay of this machine in seconds, for a thread that wakes and does little work, like
    a server."""

    @property
    def soon(self) -> bool:
        """Return True if other callers get their answers without a noticeable delay."""
        return self.slowest < SOON + 5 * self.lag


def measure(process: int, seconds: float, ask: Callable[[], None]) -> Measured:
    """Measure a process for that time, while another caller asks it 20 times a second."""
    lags, waits = [0.0], []
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            begun, ended = time.monotonic(), time.thread_time() + WORK
            time.sleep(PAUSE)
            while time.thread_time() < ended:
                pass
            lags.append(time.monotonic() - begun - PAUSE - WORK)

    worker = threading.Thread(target=work)
    worker.start()
    begun, before = time.monotonic(), processor_seconds(process)
    while time.monotonic() - begun < seconds:
        asked = time.monotonic()
        ask()
        waits.append(time.monotonic() - asked)
        time.sleep(0.05)
    took = processor_seconds(process) - before
    cores = took / (time.monotonic() - begun)
    done.set()
    worker.join()
    share = 0.99 if len(waits) >= 100 else 0.9
    return Measured(cores, sorted(waits)[int(len(waits) * share)], max(lags))


def settled(process: int, ask: Callable[[], None], cores: float, window: float) -> Measured:
    """Measure in windows of `window` seconds until a process uses at most `cores`, and return the
    last window. The initial allowance of an anonymous client is used up within a second on an idle
    machine.

    The machine itself may stop for a moment in one window. Therefore, after a window with a long
    wait, two consecutive good windows are necessary.
    """
    wanted = 1
    for _ in range(8):
        measurement = measure(process, window, ask)
        if measurement.cores >= cores:
            continue
        wanted = wanted - 1 if measurement.soon else 2
        if not wanted:
            break
    return measurement


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    port, source, secure, pipelined, request = sys.argv[1:]
    flood(int(port), source, secure == "1", pipelined == "1", bytes.fromhex(request))
