"""Webhooks as a stream: two hubs post to a faulty receiver, and one of them is killed."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fieldagent.http.message import Response
from fieldagent.hub.records.ledger import Posting, add_items_from_kits
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.hub.webhook import deliveries
from fieldagent.package.package import Message
from fieldagent.webhook.schedule import DELAY_MAX_S
from tests.hub.claiming import claim_runs
from tests.hub.test_journey import folder
from tests.hub.test_webhooks import of_batch, posting, send_messages, turn
from tests.postgres import new_database
from tests.processes import PATIENCE, administer, hub, until

SENDERS, EACH = 3, 60


class Fickle(BaseHTTPRequestHandler):
    """A receiver that keeps connections. It closes some silently after an answer, one in the middle
    of an answer, and leaves one post without an answer.
    """

    protocol_version = "HTTP/1.1"
    got: ClassVar[list[tuple[str, list[Any]]]]
    """The id of each post, and its items."""
    connections: ClassVar[set[Any]]
    held: ClassVar[threading.Event]
    over: ClassVar[threading.Event]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.got.append((self.headers["webhook-id"], body if isinstance(body, list) else [body]))
        self.connections.add(self.client_address)
        count = len(self.got)
        if count == 7:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Le")
            self.close_connection = True
            return
        if count == 12:
            self.held.set()
            self.over.wait(PATIENCE)
        self.send_response(204)
        self.end_headers()
        if count % 5 == 0:
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


def _add_items(db: Db, members: list[int], now: float) -> None:
    postings = [
        Posting(1, member, Message(f"{member}.{n}"), int(now), 12)
        for n in range(EACH)
        for member in members
    ]
    add_items_from_kits(db, postings, now=now, grace=60)


@pytest.mark.full
@pytest.mark.parametrize("batch", [0, 10])
def test_posts_of_two_hubs_are_complete_and_ordered_although_one_is_killed(
    postgres: str, tmp_path: Path, batch: int
) -> None:
    """The hub is killed within a run, a batch and a kept connection. A repeated post keeps its
    id.
    """
    database = new_database(postgres)
    administer(database, "init", "Alps")
    members = [administer(database, "user", "add", f"kit {n}")["id"] for n in range(SENDERS)]
    settings = {"database": database, "webhook-allow": "127.0.0.0/8"}

    class Receiver(Fickle):
        got: ClassVar[list[tuple[str, list[Any]]]] = []
        connections: ClassVar[set[Any]] = set()
        held, over = threading.Event(), threading.Event()

    with ExitStack() as stack:
        server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Receiver))
        server.daemon_threads = True
        stack.callback(server.shutdown)
        stack.callback(Receiver.over.set)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        option = ["--batch", str(batch)] if batch else []
        administer(database, "webhook", "add", url, "--untried", *option)
        store = open_store(database)
        stack.callback(store.close)
        store.run_once(partial(_add_items, members=members, now=time.time()))
        dies = stack.enter_context(hub(folder(tmp_path / "dies"), settings))
        assert Receiver.held.wait(PATIENCE)
        stack.enter_context(hub(folder(tmp_path / "lives"), settings))
        dies.kill()
        Receiver.over.set()
        until(lambda: _handed(store) == SENDERS * EACH)
    first: dict[str, str] = {}
    together: dict[str, list[str]] = {}
    order: dict[str, list[int]] = defaultdict(list)
    for id_, items in Receiver.got:
        ids = [item["requestId"] for item in items]
        assert together.setdefault(id_, ids) == ids, "an id names the same items each time"
        assert len(items) <= (batch or 1)
        for item in items:
            assert first.setdefault(item["requestId"], id_) == id_, "an item keeps its id"
            sender, _, number = item["payloads"][0]["events"][0]["content"].partition(".")
            if int(number) not in order[sender]:
                order[sender].append(int(number))
    assert {*order} == {str(member) for member in members}
    for numbers in order.values():
        assert numbers == [*range(EACH)]
    posts = len(Receiver.got)
    assert posts > len(together), "what was not answered came again"
    if not batch:
        assert len(Receiver.connections) < posts / 2, "connections are kept"


def _handed(store: Any) -> int:
    sql = "SELECT count(*) FROM webhook_delivery WHERE state = 'handed'"
    ((count,),) = store.run_once(lambda db: db.execute(sql))
    return int(count)


async def test_batches_of_one_sender_are_claimed_together_and_keep_their_ids(store: Store) -> None:
    async with posting(store, batch=3) as (alps, there):
        await send_messages(alps, range(8))
        (run,) = await store.commit(partial(claim_runs, now=alps.now))
        assert [len(each.items) for each in run] == [3, 3, 2]
        await store.commit(partial(deliveries.release_claims, posts=run))
        there.answers = [Response(200), Response(503)]
        await turn(alps)
        # The second one is tried later, and until then later items wait.
        await send_messages(alps, range(8, 9))
        alps.now += DELAY_MAX_S
        await turn(alps)
        ids = [each.delivery.request_id for each in run]
        got = [each.headers["webhook-id"] for each in there.got]
        assert got[:4] == [ids[0], ids[1], ids[1], ids[2]]
        sent = [each for request in there.got for each in of_batch(request)]
        assert sent == [f"a{n}" for n in (0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8)]
