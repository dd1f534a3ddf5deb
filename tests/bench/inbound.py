"""Measures items from 200 kits over their links. With ten items in a message they look cheaper than
with one, which is the case of a linked kit. The hub's database is a few minutes old, and the hub
posts each item to a webhook.

Run it as `python -m tests.bench.inbound`. No statistics of the new tables are made by hand in
PostgreSQL. Each kit sends one message after another, as many as its link accepts at a time: with
one item each, and with ten, as after a time without a link. The kits use processors of the same
machine, so the table also shows the hub's share of one processor.

With `--kits 5,50,200,1000` it measures instead the cost of an item by the number of kits in a
workspace. Five kits are linked and send. The others belong to as many users and are away.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import trio

from fieldagent.agent.channels.connecting import open_stream
from fieldagent.agent.channels.hub_connection import HubAddress, open_web_socket
from fieldagent.extensions.lab.simulator.fleet import Silence
from fieldagent.http.link_session import LinkSession
from fieldagent.hub.access import directory
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import is_postgres, open_store
from fieldagent.hub.webhook import webhook_directory
from fieldagent.hub.webhook.webhook_directory import Webhook
from fieldagent.package.package import Location
from fieldagent.wire.envelope import Entry, encode
from tests.bench.hook_receiver import receiver
from tests.bench.process import family_processor, processor
from tests.bench.pushes import statements
from tests.bench.table import row
from tests.postgres import new_database, server
from tests.processes import administer, hub, started

LINKS = 200
CLIENTS = 2
"""Processes that run the kits' ends."""
ITEMS = {1: 100, 10: 300}
"""Number of items of each kit, by the number of items in a message."""
TIME = 1_790_000_000


class Message(NamedTuple):
    body: bytes


class Talk(Silence):
    """The kit's end of a link, which sends these messages."""

    def __init__(self, messages: list[Message]) -> None:
        self._waiting = messages
        self._left = len(messages)
        self.over = trio.Event()

    async def wait_for_next(self, *, urgent: bool) -> Any:
        if urgent or not self._waiting:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return self._waiting.pop(0)

    async def mark_stored(self, item: Any) -> None:
        self._left -= 1
        if not self._left:
            self.over.set()


def messages(items: int, each: int) -> list[Message]:
    """Return a track with one position per second."""
    entries = [
        Entry(number, Location(46.5 + number * 1e-4, 7.25), TIME + number)
        for number in range(1, items + 1)
    ]
    return [Message(encode(entries[at : at + each])) for at in range(0, items, each)]


async def _talk(address: str, tokens: list[str], each: int, items: int) -> None:
    """Link all kits and report it. Then wait for the start signal, send, and report when the hub
    has everything.
    """
    posts = [Talk(messages(items, each)) for _ in tokens]
    go = trio.Event()
    linked = 0

    async def one(token: str, post: Talk) -> None:
        nonlocal linked
        connection = HubAddress(address, token)
        socket = await open_web_socket(connection, await open_stream(connection.server))
        linked += 1
        await go.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(LinkSession(socket, post).run)
            await post.over.wait()
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for token, post in zip(tokens, posts, strict=True):
            nursery.start_soon(one, token, post)
        while linked < len(tokens):
            await trio.sleep(0.05)
        print("linked", flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)
        go.set()
        for post in posts:
            await post.over.wait()
        print("sent", flush=True)


class Taken(NamedTuple):
    speed: float
    """Items per second."""
    processor: float
    """Processor milliseconds of the hub per item."""
    statements: float
    """Statements of PostgreSQL per item, including those of the webhook."""
    posted: float
    """Posts to the webhook per second at the same time."""


def taken_in(database: str, each: int, *, teams: int = 1, batch: int = 0) -> Taken:
    """Measure kits of that many users, each in a separate workspace whose webhook gets `batch`
    items per post.
    """
    administer(database, "init", "Bench")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        there = stack.enter_context(receiver(0.001))
        tokens = kits_of_teams(
            database, teams, webhook_directory.make_webhook(there.url, batch=batch)
        )
        settings = {"database": database, "webhook-allow": "127.0.0.0/8", "access-log": "none"}
        running = stack.enter_context(hub(folder, settings))
        share = -(-LINKS // CLIENTS)
        clients = []
        for client in range(CLIENTS):
            named = folder / f"tokens-{client}"
            named.write_text("\n".join(tokens[client * share : (client + 1) * share]))
            command = [sys.executable, "-m", "tests.bench.inbound", running.address, str(named)]
            pipe = subprocess.PIPE
            command += [str(each), str(ITEMS[each])]
            own = started(command, stdin=pipe, stdout=pipe, text=True)
            clients.append(stack.enter_context(own))
        for process in clients:
            _wait_for("linked", process)
        counted, spent, began = statements(database), processor(running.process.pid), time.time()
        for process in clients:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in clients:
            _wait_for("sent", process)
        took, items = time.time() - began, LINKS * ITEMS[each]
        return Taken(
            items / took,
            (processor(running.process.pid) - spent) / items * 1000,
            (statements(database) - counted) / items,
            there.got()["items"] / took,
        )


def kits_of_teams(database: str, teams: int, webhook: Webhook) -> list[str]:
    """Return the link tokens of LINKS new kits in as many workspaces as there are teams."""
    store = open_store(database)

    def add(db: Db) -> list[str]:
        users = []
        for team in range(teams):
            workspace = directory.add_workspace(db, f"team {team}", now=0.0)
            webhook_directory.add_webhook(db, workspace, webhook, now=0.0)
            users.append((workspace, directory.add_user(db, workspace, "kits", now=0.0)))
        of = [users[kit % teams] for kit in range(LINKS)]
        return [
            directory.add_device(db, *whose, directory.NewDevice(f"kit {kit}"), now=0.0)[1]
            for kit, whose in enumerate(of)
        ]

    tokens = store.run_once(add)
    store.close()
    return tokens


SENDERS = 5
SENT = 60
"""Number of messages of each, with one item each."""


def of_a_team(database: str, kits: int, postmaster: int) -> tuple[float, float]:
    """Return the items per second from `SENDERS` of that many kits, and the processor milliseconds
    of the database server per item, or 0 without a server.
    """
    administer(database, "init", "Bench")
    tokens = kits_of_users(database, kits)[:SENDERS]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = {"database": database, "access-log": "none"}
        running = stack.enter_context(hub(folder, settings))
        (named := folder / "tokens").write_text("\n".join(tokens))
        command = [sys.executable, "-m", "tests.bench.inbound", running.address, str(named), "1"]
        pipe = subprocess.PIPE
        process = stack.enter_context(
            started([*command, str(SENT)], stdin=pipe, stdout=pipe, text=True)
        )
        _wait_for("linked", process)
        spent, own = family_processor(postmaster), processor(running.process.pid)
        began = time.time()
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        _wait_for("sent", process)
        took, items = time.time() - began, SENDERS * SENT
        work = family_processor(postmaster) - spent if is_postgres(database) else 0.0
        work += processor(running.process.pid) - own
        return items / took, work / items * 1000


def kits_of_users(database: str, kits: int) -> list[str]:
    """Return the link tokens of that many new kits, each with its own user."""
    store = open_store(database)

    def add(db: Db) -> list[str]:
        users = [directory.add_user(db, 1, f"user {number}", now=0.0) for number in range(kits)]
        return [
            directory.add_device(db, 1, each, directory.NewDevice(f"kit {each}"), now=0.0)[1]
            for each in users
        ]

    tokens = store.run_once(add)
    store.close()
    return tokens


def _teams(sizes: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder, server(durable=True) as postgres:
        for kits in sizes:
            for engine in ("SQLite", "PostgreSQL"):
                new = str(Path(folder, f"{kits}.sqlite3"))
                database = new if engine == "SQLite" else new_database(postgres.address)
                speed, spent = of_a_team(database, kits, postgres.pid)
                row(f"{engine}, {kits} kits, {SENDERS} of them linked", speed, "", "/s")
                row("  processor of hub and database for an item", spent, "", "ms")


def _wait_for(word: str, process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if line != word:
        raise SystemExit(f"the kits' end said {line!r}, and not {word!r}")


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        server(durable=True, preload="pg_stat_statements") as postgres,
    ):
        for each in ITEMS:
            for engine in ("SQLite", "PostgreSQL"):
                new = str(Path(folder, f"{each}.sqlite3"))
                database = new if engine == "SQLite" else new_database(postgres.address)
                result = taken_in(database, each)
                goal = ">= 3000" if engine == "PostgreSQL" and each > 1 else ""
                row(f"{engine}, {LINKS} links, {each} in a message", result.speed, goal, "/s")
                row("  the hub's processor for an item", result.processor, "", "ms")
                if is_postgres(database):
                    row("  statements an item, with its webhook's", result.statements, "<= 2")
                row("  posts to the webhook meanwhile", result.posted, "", "/s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--kits"]:
        _teams([int(kits) for kits in sys.argv[2].split(",")])
    elif len(sys.argv) > 1:
        address, named, each, items = sys.argv[1:]
        trio.run(_talk, address, Path(named).read_text().split(), int(each), int(items))
    else:
        main()
