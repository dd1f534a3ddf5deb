"""Measures posts to a webhook. Without items that come in meanwhile, more posts leave. Run it as
`python -m tests.bench.webhooks`. The receiver is a separate process.

The items are stored before the hub starts. Then it counts the received items, by the clock and for
one core: the number for which the hub's processor time is enough, independent of other programs.

With `--flat-out` it measures instead the posts while 200 links send at full speed on the same
processors (`inbound`): of one user, also in batches, and of as many teams. These have no goals, and
take three minutes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fieldagent.hub.records.ledger import Posting, add_items_from_kits
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import Location
from tests.bench.hook_receiver import receiver
from tests.bench.inbound import taken_in
from tests.bench.process import family_processor, processor
from tests.bench.table import row
from tests.postgres import Server, new_database, server
from tests.processes import administer, hub

DATE = 1_790_000_000


class Case(NamedTuple):
    what: str
    senders: int
    items: int
    """Total number of items."""
    seconds: float
    """Seconds of the receiver per post."""
    batch: int
    goal: str


CASES = (
    Case("20 senders, a receiver of 1 ms", 20, 6_000, 0.001, 0, ">= 500"),
    Case("20 senders, a receiver of 300 ms", 20, 1_000, 0.3, 0, ""),
    Case("one sender, a receiver of 1 ms", 1, 3_000, 0.001, 0, ""),
    Case("one sender, a receiver of 100 ms", 1, 100, 0.1, 0, ""),
    Case("one sender, a receiver of 100 ms, batches of 100", 1, 5_000, 0.1, 100, ">= 100"),
)


FLAT_OUT = (
    ("200 links of one user", 1, 0),
    ("the same, batches of 100,", 1, 100),
    ("links of 200 teams", 200, 0),
)


class Posted(NamedTuple):
    speed: float
    """Items per second."""
    processor: float
    """Processor milliseconds of the hub per item."""
    postgres: float
    """Processor milliseconds of the server per item."""
    connections: int


def posted(database: str, case: Case, postgres: Server) -> Posted:
    administer(database, "init", "Bench")
    members = [administer(database, "user", "add", f"kit {n}")["id"] for n in range(case.senders)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        there = stack.enter_context(receiver(case.seconds))
        option = ["--batch", str(case.batch)] if case.batch else []
        administer(database, "webhook", "add", there.url, "--untried", *option)
        store = open_store(database)
        store.run_once(partial(add_items, members=members, items=case.items))
        store.close()
        settings = {"database": database, "webhook-allow": "127.0.0.0/8", "access-log": "none"}
        running = stack.enter_context(hub(folder, settings))
        began, before = time.time(), there.got()["items"]
        spent, theirs = processor(running.process.pid), family_processor(postgres.pid)
        while (got := there.got())["items"] < case.items:
            time.sleep(0.1)
        items, took = case.items - before, time.time() - began
        spent = processor(running.process.pid) - spent
        theirs = family_processor(postgres.pid) - theirs
        each = (1000 * spent / items, 1000 * theirs / items)
        return Posted(items / took, *each, got["connections"])


def add_items(db: Db, members: list[int], items: int) -> None:
    for first in range(0, items, 1_000):
        postings = [
            Posting(1, members[n % len(members)], Location(46.5, 7.25), DATE + n, 12)
            for n in range(first, min(first + 1_000, items))
        ]
        add_items_from_kits(db, postings, now=time.time(), grace=60)


def main(*arguments: str) -> None:
    show = _flat_out if "--flat-out" in arguments else _with_goals
    with (
        tempfile.TemporaryDirectory() as folder,
        server(durable=True, preload="pg_stat_statements") as postgres,
    ):

        def new(engine: str, name: str) -> str:
            own = str(Path(folder, f"{name}.sqlite3"))
            return own if engine == "SQLite" else new_database(postgres.address)

        for engine in ("SQLite", "PostgreSQL"):
            show(engine, partial(new, engine), postgres)


def _with_goals(engine: str, new: Callable[[str], str], postgres: Server) -> None:
    for number, case in enumerate(CASES):
        figures = posted(new(str(number)), case, postgres)
        row(f"{engine}: {case.what}", figures.speed, case.goal, "/s")
        row("  on one core", 1000 / figures.processor, case.goal, "/s")
        row("  the hub's processor for an item", figures.processor, "", "ms")
        if engine == "PostgreSQL":
            row("  PostgreSQL's", figures.postgres, "", "ms")
        row("  connections", figures.connections)


def _flat_out(engine: str, new: Callable[[str], str], postgres: Server) -> None:
    for what, teams, batch in FLAT_OUT:
        figures = taken_in(new(what), 1, teams=teams, batch=batch)
        row(f"{engine}: while {what} send flat out", figures.posted, "", "/s")
        row("  items taken in meanwhile", figures.speed, "", "/s")


if __name__ == "__main__":
    main(*sys.argv[1:])
