"""What a queue of 100 000 costs a real agent: its start, and who else wants something meanwhile."""

from __future__ import annotations

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
from fieldagent.package.delivery import Leg
from fieldagent.package.package import Channel
from fieldagent.package.reading import read_package
from fieldagent.package.writing import canonical, digest
from tests.processes import Agent, agent, until

WAITING = 100_000


class LongQueue(NamedTuple):
    start: float
    """Until it listens, over that of an agent with nothing to send."""
    held: float
    """Seconds that a look at its health took at the longest, while all was listed and cleared."""


def fill(journal: Path, count: int) -> None:
    """As an agent would have written them."""
    opened, now = Journal(journal), time.time()

    def store(db: object) -> None:
        for number in range(1, count + 1):
            package = read_package({"message": {"content": f"message {number}"}})
            body = canonical(package)
            outbound.accept(
                body,
                id_=number,
                digest=digest(body),
                idempotency_key=None,
                accepted=now,
                expires=now + 86_400,
                dated=now,
                legs={Channel.SATELLITE: Leg()},
                status=None,
                priority=package.priority,
                is_sos=False,
            )(db)  # type: ignore[arg-type]

    opened.commit_at_start(store)
    opened.close()


def long_queue() -> LongQueue:
    with tempfile.TemporaryDirectory() as folder:
        many, none = Path(folder, "many"), Path(folder, "none")
        (many / "state").mkdir(parents=True)
        none.mkdir()
        fill(many / "state/journal.sqlite3", WAITING)
        began = time.perf_counter()
        with agent(none, {"satellite-port": "/nonexistent"}):
            short = time.perf_counter() - began
        began = time.perf_counter()
        with agent(many, {"satellite-port": "/nonexistent"}) as kit:
            start = (time.perf_counter() - began) / short
            # All are back in the queue.
            until(
                lambda: (
                    kit.call("GET", "/api/status").body["channels"]["Satellite"]["queued"]
                    == WAITING
                )
            )
            with _longest(kit) as held:
                assert kit.call("GET", "/api/queue").body["queued"] == WAITING
                assert kit.call("DELETE", "/api/queue", {}).body == {"deleted": WAITING}
    return LongQueue(start, max(held))


def _queued(kit: Agent) -> int:
    queued: int = kit.call("GET", "/api/status").body["channels"]["Satellite"]["queued"]
    return queued


@contextmanager
def _longest(kit: Agent) -> Iterator[list[float]]:
    """How long each look at its health takes."""
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


if __name__ == "__main__":
    print(long_queue())
