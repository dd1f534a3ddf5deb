"""Measures a real agent with a queue of 100 000: its start, and the other callers meanwhile. An
empty queue makes both fast.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from fieldagent.agent.journal import outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import Channel
from fieldagent.package.reading import read_package
from fieldagent.package.writing import digest, make_canonical
from tests.bench.process import processor, resident
from tests.bench.table import row
from tests.processes import Agent, agent, until

WAITING = 100_000


class LongQueue(NamedTuple):
    start: float
    """Start until it listens, as a ratio to an agent with an empty queue. It was closed in
    order."""
    killed: float
    """The ratio `start`, after both agents were killed, so that each start checks the journal."""
    memory: float
    """KiB per waiting Package."""
    lists: float
    """CPU milliseconds of the agent for a list of 50, the most expensive list of its page."""
    sos: float
    """Time to accept an SOS while the page is open, as a ratio to the same without the page."""
    held: float
    """Longest seconds of a health check while everything was listed and cleared."""
    cleared: float
    """CPU seconds of the agent for clearing everything, with only those health checks."""


def fill(journal: Path, count: int) -> None:
    """Fill the journal as an agent would."""
    opened, now = Journal(journal), time.time()

    def store(db: object) -> None:
        for number in range(1, count + 1):
            package = read_package({"message": {"content": f"message {number}"}})
            body = make_canonical(package)
            new = outbound.NewPackage(
                body,
                digest(body),
                accepted=now,
                expires=now + 86_400,
                dated_at=now,
                deliveries={Channel.SATELLITE: ChannelDelivery()},
                priority=package.priority,
                id=number,
            )
            outbound.store_new_package(new)(db)  # type: ignore[arg-type]

    opened.commit_at_start(store)
    opened.close()


def long_queue() -> LongQueue:
    with tempfile.TemporaryDirectory() as folder:
        many, none = Path(folder, "many"), Path(folder, "none")
        (many / "state").mkdir(parents=True)
        none.mkdir()
        fill(many / "state/journal.sqlite3", WAITING)
        with _started(none) as (kit, short):
            _look(kit)
            empty = resident(kit.process.pid)
        with _started(many) as (kit, long):
            start = long / short
            _all_are_back(kit)
        with _started(none) as (_, short):
            pass
        with _started(many) as (kit, long):
            killed = long / short
            _all_are_back(kit)
            memory = (resident(kit.process.pid) - empty) / WAITING / 1024
            lists = max(_processor_for(kit, path) for path in LISTS)
            alone, watched = [], []
            for _ in range(ROUNDS):
                alone += _sos_accepted(kit)
                with _page_open(kit):
                    watched += _sos_accepted(kit)
            sos = statistics.median(watched) / statistics.median(alone)
            with _longest(kit) as held:
                waiting = WAITING + 2 * ROUNDS * SOS
                assert kit.call("GET", "/api/queue").body["queued"] == waiting
                before = processor(kit.process.pid)
                answer = kit.call("DELETE", "/api/queue", {})
                # An open SOS can only be cancelled as a whole, so it stays.
                assert answer.body == {"deleted": WAITING}, answer
                cleared = processor(kit.process.pid) - before
    return LongQueue(start, killed, memory, lists, sos, max(held), cleared)


@contextmanager
def _started(home: Path) -> Iterator[tuple[Agent, float]]:
    """Yield the agent and the seconds until it listens. It is killed at the end of the block."""
    began = time.perf_counter()
    with agent(home, {"satellite-port": "/nonexistent"}) as kit:
        yield kit, time.perf_counter() - began


def _all_are_back(kit: Agent) -> None:
    """Wait until all are in the queue again."""

    def queued() -> int:
        return int(kit.call("GET", "/api/status").body["channels"]["Satellite"]["queued"])

    until(lambda: queued() == WAITING)


LISTS = ("/api/queue?limit=50", "/api/packages?limit=50", "/api/packages?limit=50&state=waiting")
PAUSE = 0.5
"""Seconds between two loads of the page (page.js)."""
ROUNDS, SOS = 5, 10


def _look(kit: Agent) -> None:
    for path in ("/api/status", "/api/packages?limit=50", "/api/queue?limit=1"):
        assert kit.call("GET", path).status == 200


def _processor_for(kit: Agent, path: str, times: int = 50) -> float:
    """Return the CPU milliseconds of the agent for one such call."""
    before = processor(kit.process.pid)
    for _ in range(times):
        assert kit.call("GET", path).status == 200
    return (processor(kit.process.pid) - before) / times * 1000


def _sos_accepted(kit: Agent) -> list[float]:
    """Return the seconds of several SOS."""
    took = []
    for number in range(SOS):
        body = {"message": {"content": f"SOS {number}"}, "priority": 100}
        began = time.perf_counter()
        assert kit.call("POST", "/api/package/async", body).status == 202
        took.append(time.perf_counter() - began)
        time.sleep(0.05)
    return took


@contextmanager
def _page_open(kit: Agent) -> Iterator[None]:
    """Load at each event, as often as the page does."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(PAUSE):
            _look(kit)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()


@contextmanager
def _longest(kit: Agent) -> Iterator[list[float]]:
    """Yield a list of the seconds of each health check."""
    took: list[float] = []
    over = threading.Event()

    def look() -> None:
        connection = HTTPConnection("127.0.0.1", kit.port)
        while not over.wait(0.002):
            began = time.perf_counter()
            connection.request("GET", "/api/health")
            connection.getresponse().read()
            took.append(time.perf_counter() - began)
        connection.close()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield took
    finally:
        over.set()
        looking.join()


def main() -> None:
    """Print the rows."""
    waiting = long_queue()
    row("start to listening with 100 000 waiting, over with none", waiting.start, "<= 1.3")
    row("  the same after a kill, with the check of the journal", waiting.killed, "<= 1.6")
    row("  memory for each of them", waiting.memory, "", "KiB")
    row("  CPU for a list of 50 of them", waiting.lists, "<= 5", "ms")
    row("  SOS accepted with the page open, over closed", waiting.sos, "<= 1.2")
    row("  health at worst while those were cleared", waiting.held, "<= 0.05", "s")
    row("  CPU for clearing them", waiting.cleared, "", "s")


if __name__ == "__main__":
    main()
